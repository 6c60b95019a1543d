"""Closing runs whose controller died, so that they read like any other."""

from __future__ import annotations

import os
from typing import Any

from testbed.errors import EXIT_INTERRUPTED, StoreError
from testbed.store.encoding import decode_event, encode_event
from testbed.store.events import RUN_FINISHED
from testbed.store.index import RunIndex
from testbed.store.layout import EVENTS_FILE, TRIALS_FILE
from testbed.store.reader import RUNNING, UNFINISHED, StoredRun, open_run
from testbed.store.trials import write_trials

_ENDED = {
    "status": "interrupted",
    "exit_code": EXIT_INTERRUPTED,
    "error": {
        "kind": "interrupted",
        "message": "the controller died before the run had ended; closed afterwards by repair",
        "remedy": "see `testbed recover` for devices that it left changed",
    },
}


def repair(run: StoredRun) -> dict[str, Any]:
    """Close a run that was cut off: drop a torn line, write the end, make its table and row.

    A finished run only gets what is missing beside its log. What was done is returned.

    :raises StoreError: when the run still goes on, or its log is damaged before its end.
    """
    if run.status == RUNNING:
        raise StoreError(
            f"{run.id} still goes on; its controller holds the log", remedy="wait, or interrupt it"
        )
    done: list[str] = []
    if run.status == UNFINISHED:
        dropped = _close(run)
        if dropped:
            done.append(f"dropped {dropped} bytes of a torn line")
        done.append("closed the log")
        run = open_run(run.folder)
    if "closed the log" in done or not (run.folder / TRIALS_FILE).is_file():
        write_trials(run)
        done.append("made the table of trials")
    RunIndex(run.folder.parent).add(run)
    return {"run": run.id, "status": run.status, "done": done}


def _close(run: StoredRun) -> int:
    """Cut the log after its last readable line and write the end; returns the bytes dropped."""
    last_t = 0.0
    for event in run.events():  # raises when there is damage before the end
        last_t = event.get("t", last_t)
    path = run.folder / EVENTS_FILE
    whole = 0
    with path.open("a+b") as log:
        log.seek(0)
        for line in log:
            if not line.endswith(b"\n") or not _readable(line):
                break
            whole += len(line)
        size = log.seek(0, os.SEEK_END)
        log.truncate(whole)
        log.write(encode_event({"t": last_t, "kind": RUN_FINISHED, **_ENDED}))
        log.flush()
        os.fsync(log.fileno())
    return size - whole


def _readable(line: bytes) -> bool:
    try:
        decode_event(line)
    except ValueError:
        return False
    return True
