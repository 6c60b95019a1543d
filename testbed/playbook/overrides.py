"""Variables given on the command line: ``--set name=value`` and ``--vars FILE``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.source.places import Diagnostic, FileFaults, Place
from testbed.source.reader import parse, read_text
from testbed.source.suggest import did_you_mean

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass
class Overrides:
    """Values by name, where each was given, and the faults found in them."""

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    faults: list[Diagnostic] = field(default_factory=list)

    def unknown(self, name: str, known: Iterable[str]) -> None:
        """Report a variable that the playbook does not have."""
        self.faults.append(
            Diagnostic(
                self.places[name],
                f"the playbook has no variable {name!r}",
                "",
                did_you_mean(name, known),
            )
        )


def read_overrides(assignments: Mapping[str, str], vars_file: Path | None) -> Overrides:
    """Read both; assignments win over the file. Faults are collected, not raised."""
    overrides = Overrides()
    if vars_file is not None:
        _read_file(vars_file, overrides)
    for name, text in assignments.items():
        place = Place(f"--set {name}", 1, 1)
        if not _IDENTIFIER.fullmatch(name):
            overrides.faults.append(
                Diagnostic(
                    place, f"{name!r} is no name of a variable", "", "write --set name=value"
                )
            )
            continue
        document = parse(text, place.file) if text.strip() else None
        if document is not None and document.faults:
            overrides.faults += document.faults
            continue
        overrides.values[name] = "" if document is None else document.value
        overrides.places[name] = place
    return overrides


def _read_file(path: Path, overrides: Overrides) -> None:
    try:
        document = parse(read_text(path), str(path))
    except FileFaults as faults:
        overrides.faults += faults.diagnostics
        return
    if not document.faults and not isinstance(document.value, Mapping):
        document.fault(document.place(()), "a file of variables is a mapping", "write name: value")
    overrides.faults += document.faults
    if document.faults:
        return
    for name, value in document.value.items():
        overrides.values[name] = value
        overrides.places[name] = document.key_place((name,))
