"""The state file of a mock rack: what a real rack would still be when the controller is gone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from testbed.errors import RackError

VERSION = 1
Section = dict[str, Any]


class StateFile:
    """One small JSON file with a section for each device, replaced whole at each change.

    Replacing is atomic, so that a reader, or the next command after a crash, finds the state
    before or after a change and nothing between. It is not synced to the disk: a mock rack
    need not outlive its machine.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sections: dict[str, Section] = self._load()

    def put(self, device: str, section: Section) -> None:
        """Keep the state of one device."""
        if self.sections.get(device) == section:
            return
        self.sections[device] = section
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        fresh.write_text(
            json.dumps({"version": VERSION, "devices": self.sections}, indent=1) + "\n",
            encoding="utf-8",
        )
        fresh.replace(self.path)

    def _load(self) -> dict[str, Section]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise RackError(f"state of the mock rack in {self.path}: {error.strerror}") from error
        try:
            content = json.loads(text)
            if content["version"] != VERSION:
                raise ValueError(f"version {content['version']}, and this is version {VERSION}")
            sections = content["devices"]
            if not all(isinstance(s, dict) for s in sections.values()):
                raise TypeError("a section is no mapping")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self.corrupt(error) from error
        return dict(sections)

    def corrupt(self, error: Exception) -> RackError:
        """The error for a file, or a section, that cannot be understood."""
        return RackError(
            f"state of the mock rack in {self.path} cannot be read: {error}",
            remedy=f"delete {self.path}; the mock rack then starts anew, with all power on and "
            "no circuits",
            path=str(self.path),
        )
