"""One lease per rack, safe against crashes.

A lease is a lock of the kernel (``flock``) on a file: it ends with the process that holds it,
however that dies, so nothing can stay locked and no process id has to be believed. What stands
*in* the file only tells people who holds it.

An operator can break a lease (:func:`break_lease`): the file is replaced, and the former holder,
whose lock is now on a file without a name, is refused at its next command (:meth:`Lease.check`).
That check is one ``stat``.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import secrets
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import trio

from testbed.errors import LeaseError
from testbed.timing.clock import WallAnchor, now_s

LEASE_FILE = "lease.json"
POLL_S = 0.2
"""Pause between two looks at a lease that is waited for, in seconds."""


@dataclass(frozen=True)
class Holder:
    """Who holds a lease, for people.

    :param run: id of the run, or what a command by hand calls itself.
    :param started: start time of the process, in ticks of the kernel since boot, which together
        with ``pid`` and ``boot`` names a process for good; ``None`` where unknown.
    :param since: wall time (UTC, ISO 8601).
    """

    run: str
    user: str
    host: str
    pid: int
    started: int | None
    boot: str | None
    nonce: str
    since: str
    command: str

    @classmethod
    def here(cls, run: str) -> Holder:
        """This process."""
        return cls(
            run=run,
            user=_user(),
            host=socket.gethostname(),
            pid=os.getpid(),
            started=_process_start(),
            boot=_boot_id(),
            nonce=secrets.token_hex(8),
            since=WallAnchor.take().wall.isoformat(timespec="seconds"),
            command=" ".join(sys.argv),
        )

    @classmethod
    def parse(cls, text: str) -> Holder | None:
        """Read what stands in the file; ``None`` when nothing legible does."""
        try:
            record = json.loads(text)
            return cls(**{f.name: record[f.name] for f in fields(cls)})
        except (ValueError, TypeError, KeyError):
            return None

    def __str__(self) -> str:
        return f"run {self.run} of {self.user}@{self.host} (process {self.pid}, since {self.since})"


class Lease:
    """A held lease. Make one with :func:`acquire`; ``release`` may be called twice."""

    def __init__(self, rack: str, path: Path, handle: int, holder: Holder) -> None:
        self.rack = rack
        self.holder = holder
        self._path = path
        self._handle: int | None = handle
        found = os.fstat(handle)
        self._identity = (found.st_dev, found.st_ino)

    def check(self) -> None:
        """Refuse to go on when the lease is not held any more. Costs one ``stat``.

        :raises LeaseError: when it was broken or released.
        """
        if self._handle is not None and _identity(self._path) == self._identity:
            return
        successor = read_holder(self._path)
        raise LeaseError(
            f"the lease of rack {self.rack} is lost: it was "
            + ("released" if self._handle is None else "broken by an operator")
            + (f", and {successor} holds it now" if successor else ""),
            rack=self.rack,
            holder=None if successor is None else asdict(successor),
        )

    def release(self) -> None:
        """Let the rack go."""
        if self._handle is None:
            return
        if _identity(self._path) == self._identity:
            with suppress(OSError):  # what stands in a file without a lock means nothing
                os.ftruncate(self._handle, 0)
        os.close(self._handle)
        self._handle = None


async def acquire(
    folder: Path,
    *,
    rack: str,
    run: str,
    wait_s: float = 0.0,
    waiting: Callable[[Holder | None], None] | None = None,
) -> Lease:
    """Take the lease of a rack, and wait for it at most ``wait_s`` seconds.

    :param folder: the rack's folder in the state directory, which must be on a local disk.
    :param waiting: called once with who holds it, when it has to be waited for.
    :raises LeaseError: naming who holds it.
    """
    end_s = now_s() + wait_s
    told = False
    while True:
        lease = _try(folder, rack, run)
        if lease is not None:
            return lease
        holder = read_holder(folder / LEASE_FILE)
        left_s = end_s - now_s()
        if left_s <= 0:
            raise _held(rack, holder, wait_s)
        if waiting is not None and not told:
            waiting(holder)
            told = True
        await trio.sleep(min(POLL_S, left_s))


def holder_of(folder: Path) -> Holder | None:
    """Who holds the lease now; ``None`` when nobody does."""
    path = folder / LEASE_FILE
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return read_holder(path) or Holder("?", "?", "?", 0, None, None, "", "?", "?")
    finally:
        os.close(handle)
    return None


def break_lease(folder: Path) -> Holder | None:
    """Take the lease away from whoever holds it; returns who that was.

    The former holder is refused at its next command that changes something. What it has
    changed until then is in its journal.
    """
    path = folder / LEASE_FILE
    holder = holder_of(folder)
    with suppress(FileNotFoundError):
        path.unlink()
    return holder


def read_holder(path: Path) -> Holder | None:
    """What stands in a lease file, whether it is locked or not."""
    try:
        return Holder.parse(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError):
        return None


def _try(folder: Path, rack: str, run: str) -> Lease | None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LEASE_FILE
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        found = os.fstat(handle)
        if _identity(path) == (found.st_dev, found.st_ino):
            break
        os.close(handle)  # broken by an operator between our two calls: lock the new file
    holder = Holder.here(run)
    os.ftruncate(handle, 0)
    os.pwrite(handle, (json.dumps(asdict(holder)) + "\n").encode(), 0)
    return Lease(rack, path, handle, holder)


def _held(rack: str, holder: Holder | None, wait_s: float) -> LeaseError:
    waited = f" after waiting for {wait_s:g} s" if wait_s else ""
    who = str(holder) if holder else "somebody who has not signed yet"
    return LeaseError(
        f"rack {rack} is held by {who}{waited}",
        remedy="wait for it with --wait SECONDS; end that run"
        + (f" (on {holder.host}: kill -INT {holder.pid})" if holder else "")
        + "; or, when it hangs, take the rack from it with `testbed rack release --force`",
        rack=rack,
        holder=None if holder is None else asdict(holder),
    )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - on the way of every command; Path.stat is slower
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return str(os.getuid())


def _boot_id() -> str | None:
    return _read_proc("/proc/sys/kernel/random/boot_id")


def _process_start() -> int | None:
    # The 22nd field, counted after the program's name, which may hold anything.
    text: Any = _read_proc("/proc/self/stat")
    return None if text is None else int(text.rpartition(")")[2].split()[19])


def _read_proc(path: str) -> str | None:
    try:
        return Path(path).read_text("utf-8").strip()
    except OSError:
        return None
