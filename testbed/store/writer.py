"""Writing a run: a folder with its header, its event log and, at the end, its table of trials.

The event log is the truth; everything else can be made again from it. Each event goes to the
operating system as one whole line, so that a killed controller loses nothing, and a torn line can
only be the last one. :meth:`RunWriter.sync` makes all lines before it survive a power cut too.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from testbed.errors import StoreError
from testbed.store.encoding import encode_event
from testbed.store.events import RUN_FINISHED, Event
from testbed.store.layout import ARTEFACTS_DIR, EVENTS_FILE, HEADER_FILE, replaced_whole

_log = logging.getLogger(__name__)

# Also on systems without it the data must reach the disk; only the time stamps may wait.
_sync_data = getattr(os, "fdatasync", os.fsync)


class RunWriter:
    """Writes one run. While it lives, it holds a lock on the event log, by which a reader tells
    a run that still goes on from one whose controller died (no process id can be mistaken).

    :ivar folder: the run's folder.
    """

    def __init__(self, folder: Path, log: int) -> None:
        self.folder = folder
        self._log: int | None = log
        self._size = os.fstat(log).st_size
        self._last_t = 0.0

    @classmethod
    def create(cls, results_dir: Path, header: Mapping[str, Any]) -> RunWriter:
        """Make ``results_dir/<run>`` with ``run.json`` and an empty event log, both durable.

        :param header: the content of ``run.json``, with at least ``run``, the run's name; see
            :func:`testbed.store.header.run_header`.
        :raises StoreError: when the folder exists already or cannot be written.
        """
        folder = results_dir / header["run"]
        try:
            results_dir.mkdir(parents=True, exist_ok=True)
            folder.mkdir()
            log = os.open(
                folder / EVENTS_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644
            )
        except OSError as error:
            raise StoreError(
                f"no run can be stored in {results_dir}: {error.strerror or error}",
                remedy="choose another folder for the results",
                path=str(folder),
            ) from error
        fcntl.flock(log, fcntl.LOCK_EX)
        with replaced_whole(folder / HEADER_FILE) as draft:
            draft.write_text(json.dumps(header, indent=2, ensure_ascii=False) + "\n", "utf-8")
        _sync_folder(folder)
        _sync_folder(results_dir)
        return cls(folder, log)

    def append(self, event: Event) -> None:
        """Write one event to the operating system; no ``fsync``.

        :raises StoreError: when the disk is full or broken. What was written of the line is
            taken back, so that the log ends in a whole line and can be appended to again.
        """
        line = encode_event(event)
        try:
            written = os.write(self._open_log(), line)
            while written < len(line):  # the disk is nearly full; the rest says so
                written += os.write(self._open_log(), line[written:])
        except OSError as error:
            self._take_back()
            raise self._failed(error) from error
        self._size += written
        self._last_t = event.get("t", self._last_t)

    def sync(self) -> None:
        """Return when every event so far would survive a power cut.

        :raises StoreError: when the disk is full or broken.
        """
        try:
            _sync_data(self._open_log())
        except OSError as error:
            raise self._failed(error) from error

    def artefact(self, name: str, text: str) -> str:
        """Store a text beside the log; returns its path relative to the run's folder.

        :param name: file name, which may have folders: ``host1/train.log``.
        :raises StoreError: when the name leaves the run's folder, or the disk is full or broken.
        """
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise StoreError(f"an artefact cannot be called {name!r}: it must stay in the run")
        relative = PurePosixPath(ARTEFACTS_DIR) / path
        target = self.folder / relative
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._failed(error) from error
        with replaced_whole(target) as draft:
            draft.write_bytes(text.encode("utf-8", "surrogateescape"))
        return str(relative)

    def finish(self, outcome: Mapping[str, Any]) -> None:
        """Write ``run.finished``, make everything durable, then derive the table of trials and
        the row of the index.

        :param outcome: ``status``, ``exit_code`` and ``error`` of the run; ``t`` when the run
            ended, else the time of its last event.
        :raises StoreError: when the end or the table could not be written; whatever the log
            held before is safe.
        """
        self.append({"t": self._last_t, "kind": RUN_FINISHED, **outcome})
        self.sync()
        self.close()
        from testbed.store.index import RunIndex
        from testbed.store.reader import open_run
        from testbed.store.trials import write_trials

        run = open_run(self.folder)
        write_trials(run)
        try:
            RunIndex(self.folder.parent).add(run)
        except StoreError as error:
            # The index is a cache: the next listing finds the folder by itself.
            _log.warning("%s", error.message)

    def close(self) -> None:
        """Close the log without an end, as after a defect; does nothing the second time."""
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def _open_log(self) -> int:
        if self._log is None:
            raise StoreError(f"{self.folder.name} is closed; nothing more can be stored in it")
        return self._log

    def _take_back(self) -> None:
        try:
            os.ftruncate(self._open_log(), self._size)
        except OSError:
            # A broken disk. Readers skip a torn last line; no line may ever follow it.
            self.close()

    def _failed(self, error: OSError) -> StoreError:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return StoreError(
            f"{self.folder} cannot be written: "
            + ("the disk is full" if full else error.strerror or str(error)),
            remedy="make room and run again; all events so far are kept" if full else None,
            path=str(self.folder),
            errno=error.errno,
        )


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
