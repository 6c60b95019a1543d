"""Reading a run, finished or not: whatever its controller lived to write is there."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from testbed.errors import StoreError
from testbed.store.encoding import decode_event
from testbed.store.events import EXPECTATION, RUN_FINISHED, SAFE_STATE, Event
from testbed.store.layout import EVENTS_FILE, HEADER_FILE, TRIALS_FILE
from testbed.store.log import kinds_pattern, line_number, whole_lines
from testbed.store.summary import summary_record
from testbed.store.trials import TrialRow, read_trials, rows_of_events

RUNNING = "running"
UNFINISHED = "unfinished"

_ROW_KINDS = kinds_pattern("trial.", "point.")
_CLOSING_KINDS = kinds_pattern(EXPECTATION, SAFE_STATE)
_END_KIND = kinds_pattern(RUN_FINISHED)
_TAIL_BYTES = 64 * 1024


def open_run(folder: Path) -> StoredRun:
    """The run in ``folder``.

    :raises StoreError: when there is none, or its ``run.json`` cannot be read.
    """
    path = folder / HEADER_FILE
    try:
        header = json.loads(path.read_text("utf-8"))
        if not isinstance(header, dict):
            raise ValueError("it holds no JSON object")
        return StoredRun(folder, header)
    except OSError as error:
        raise StoreError(
            f"{folder} holds no run: {error.strerror or error}",
            remedy="see `testbed results list`",
            path=str(path),
        ) from error
    except ValueError as error:
        raise StoreError(f"{path} cannot be read: {error}", path=str(path)) from error


class StoredRun:
    """One run on disk.

    :ivar folder: its folder.
    :ivar header: the content of ``run.json``.
    """

    def __init__(self, folder: Path, header: dict[str, Any]) -> None:
        self.folder = folder
        self.header = header

    @property
    def id(self) -> str:
        return str(self.header.get("run", self.folder.name))

    @property
    def playbook(self) -> str:
        return str(self.header.get("playbook", {}).get("name", ""))

    @property
    def rack(self) -> str:
        return str(self.header.get("rack", {}).get("name", ""))

    @property
    def backend(self) -> str:
        return str(self.header.get("backend", "unknown"))

    @property
    def virtual(self) -> bool:
        return bool(self.header.get("virtual", False))

    @property
    def status(self) -> str:
        """``passed``, ``failed``, ``error`` or ``interrupted``; ``running`` while its controller
        lives, ``unfinished`` when that died before the end."""
        if self.finished is not None:
            return str(self.finished["status"])
        return RUNNING if self._is_held() else UNFINISHED

    def unit(self, measure: str) -> str:
        """Unit of the values of a measure."""
        return str(self.header.get("measures", {}).get(measure, {}).get("unit", "s"))

    @cached_property
    def finished(self) -> Event | None:
        """The event ``run.finished``, when there is one: it is the last line."""
        try:
            with (self.folder / EVENTS_FILE).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                lines = log.read().split(b"\n")
        except OSError:
            return None
        if len(lines) > 2:
            try:
                event = decode_event(lines[-2])
            except ValueError:
                return None
            return event if event.get("kind") == RUN_FINISHED else None
        # The last line alone is longer than what was read, or the only one.
        return next((e for e in self._read(_END_KIND) if e.get("kind") == RUN_FINISHED), None)

    def events(self) -> Iterator[Event]:
        """Every event that was written as a whole; a torn end of the log is passed over.

        :raises StoreError: when a line *before* the end cannot be read: the log was damaged.
        """
        return self._read(None)

    def trials(self) -> Iterator[TrialRow]:
        """One row a trial: from the table when the run has a whole one, else from the log."""
        table = self.folder / TRIALS_FILE
        if self.finished is not None and table.is_file():
            try:
                return read_trials(table)
            except ValueError:
                return self.trials_from_events()
        return self.trials_from_events()

    def trials_from_events(self) -> Iterator[TrialRow]:
        """One row a trial, always from the event log."""
        return rows_of_events(self._read(_ROW_KINDS))

    def summary(self) -> dict[str, Any]:
        """Outcome and statistics as one JSON-compatible record (DESIGN section 10)."""
        return summary_record(self)

    def closing_events(self) -> tuple[list[Event], list[Event]]:
        """Events of the checks at the end: expectations, and devices with their safe state."""
        expectations: list[Event] = []
        devices: list[Event] = []
        for event in self._read(_CLOSING_KINDS):
            if event["kind"] == EXPECTATION:
                expectations.append(event)
            elif event["kind"] == SAFE_STATE:
                devices.append(event)
        return expectations, devices

    def _read(self, wanted: re.Pattern[bytes] | None) -> Iterator[Event]:
        """Events of the lines in which the pattern is found; without one, all events."""
        path = self.folder / EVENTS_FILE
        unreadable: tuple[int, str] | None = None
        try:
            log = path.open("rb")
        except OSError as error:
            raise StoreError(
                f"{path} cannot be read: {error.strerror or error}", path=str(path)
            ) from error
        with log:
            for offset, line in whole_lines(log, wanted):
                try:
                    event = decode_event(line)
                except ValueError as error:
                    # At the very end it is what a power cut leaves; else the log was damaged.
                    unreadable = unreadable or (offset, str(error))
                    continue
                if unreadable is not None:
                    number = line_number(path, unreadable[0])
                    raise StoreError(
                        f"{path}:{number}: the event log is damaged: {unreadable[1]}",
                        path=str(path),
                        line=number,
                    )
                yield event

    def _is_held(self) -> bool:
        """Whether a writer holds the log: the kernel frees the lock of a process that died."""
        try:
            log = os.open(self.folder / EVENTS_FILE, os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(log, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False  # a file system without locks; nobody can be seen to hold it
        finally:
            os.close(log)
        return False
