"""The journal of a run: what it has changed on devices, written down before it does so.

One file a run, ``journal/<run>.jsonl`` in the rack's folder of the state directory. A line is
written, and given to the operating system, before the command that it tells of is sent, so a
controller that is killed leaves a journal that names every device it may have changed. The first
line about a device is made durable (``fsync``) as well: that one line makes the device *dirty*,
also after a power cut, and later ones only add to it.

The file is removed when every device is known to be safe. One that is left belongs to a run that
still goes on, which then holds a lock on it, or to one that has died or could not clean up.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.errors import RackError
from testbed.timing.clock import WallAnchor

FOLDER = "journal"
VERSION = 1
Before = Mapping[str, Any]


@dataclass
class DeviceChanges:
    """What a run has done to one device.

    :ivar operations: names of the operations that it has begun, each once.
    :ivar before: per part (``circuits``, ``outlets``, ``interfaces``, ``cells``), what was
        there before the first change; parts that were not known are missing. Outlets and
        interfaces are by name.
    """

    operations: list[str] = field(default_factory=list)
    before: dict[str, Any] = field(default_factory=dict)

    def add(self, operation: str, before: Before) -> bool:
        """Add a change; returns whether anything new is in it."""
        new = operation not in self.operations
        if new:
            self.operations.append(operation)
        for part, value in before.items():
            if part not in self.before:
                self.before[part] = dict(value) if isinstance(value, Mapping) else value
                new = True
            elif isinstance(value, Mapping):
                for key, item in value.items():
                    if key not in self.before[part]:
                        self.before[part][key] = item
                        new = True
        return new


class Journal:
    """What this session has changed, in memory. In virtual time that is all there is: a
    simulated world ends with its controller."""

    def __init__(self) -> None:
        self.changes: dict[str, DeviceChanges] = {}

    def intend(self, device: str, operation: str, before: Before) -> None:
        """Note a change that is about to be made; returns when that is safe to do."""
        first = device not in self.changes
        changes = self.changes.setdefault(device, DeviceChanges())
        if changes.add(operation, before):
            self._write({"device": device, "operation": operation, "before": dict(before)}, first)

    def settle(self, device: str) -> None:
        """Note that a device is as it should be."""
        if self.changes.pop(device, None) is not None:
            self._write({"device": device, "settled": True}, False)

    def close(self) -> None:
        """End the journal; it stays when devices in it are not settled."""

    def _write(self, record: Mapping[str, Any], durable: bool) -> None:
        """In memory there is nothing to write."""


class FileJournal(Journal):
    """A journal that outlives its controller.

    :param folder: the rack's folder in the state directory.
    :param name: name of its file, which must be new.
    :param run: the run that writes it, which is also the tag of its processes.
    """

    def __init__(self, folder: Path, name: str, run: str, rack: str) -> None:
        super().__init__()
        self._torn = False
        directory = folder / FOLDER
        self._path = directory / f"{name}.jsonl"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._handle: int | None = os.open(
                self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644
            )
        except OSError as error:
            raise RackError(
                f"no journal can be kept in {directory}: {error.strerror or error}",
                remedy="choose another state directory with TESTBED_STATE_DIR",
                path=str(self._path),
            ) from error
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        self._write(
            {
                "journal": VERSION,
                "run": run,
                "rack": rack,
                "since": WallAnchor.take().wall.isoformat(timespec="seconds"),
            },
            True,
        )
        _sync_folder(directory)

    def close(self) -> None:
        if self._handle is None:
            return
        if not self.changes:
            self._path.unlink(missing_ok=True)
        os.close(self._handle)
        self._handle = None

    def _write(self, record: Mapping[str, Any], durable: bool) -> None:
        if self._handle is None:
            return
        line = json.dumps(record, default=str).encode() + b"\n"
        try:
            # A line that failed halfway must not swallow the one after it.
            written = os.write(self._handle, b"\n" + line if self._torn else line)
            self._torn = written < len(line)
            if self._torn:
                raise OSError(errno.ENOSPC, "the disk is full")
            if durable:
                os.fsync(self._handle)
        except OSError as error:
            # Nothing is changed that could not be undone after a crash.
            raise RackError(
                f"the journal {self._path} cannot be written: {error.strerror or error}; "
                "nothing was sent",
                path=str(self._path),
            ) from error


@dataclass(frozen=True)
class DirtyRun:
    """A run that ended without having made its devices safe.

    :param since: wall time of its start (UTC, ISO 8601).
    """

    run: str
    rack: str
    since: str
    changes: Mapping[str, DeviceChanges]
    path: Path

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(self.changes)

    def forget(self) -> None:
        """Remove the journal: all its devices are safe."""
        self.path.unlink(missing_ok=True)


def dirty_runs(folder: Path, *, tidy: bool = False) -> list[DirtyRun]:
    """Runs without a living controller whose journals name devices, oldest first.

    :param tidy: remove journals that name none; for the holder of the lease only, since a run
        that is just starting has such a journal too.
    """
    found = []
    for path in sorted((folder / FOLDER).glob("*.jsonl")):
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # that run still goes on
            run = read_journal(path, file.read())
        if run is None or not run.changes:
            # Killed before it changed anything, or after everything was settled.
            if tidy:
                path.unlink(missing_ok=True)
            continue
        found.append(run)
    return sorted(found, key=lambda run: (run.since, run.run))


def read_journal(path: Path, content: bytes) -> DirtyRun | None:
    """Read a journal that may end anywhere; ``None`` when not even its first line is whole."""
    records = list(_records(content))
    if not records or "journal" not in records[0]:
        return None
    changes: dict[str, DeviceChanges] = {}
    for record in records[1:]:
        if record.get("settled"):
            changes.pop(record["device"], None)
            continue
        device = changes.setdefault(record["device"], DeviceChanges())
        device.add(record["operation"], record["before"])
    head = records[0]
    return DirtyRun(head["run"], head["rack"], head["since"], changes, path)


def _records(content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue  # torn by the end of its writer: what it tells of was not sent
        if isinstance(record, dict):
            yield record


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
