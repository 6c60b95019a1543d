"""The lease of a rack: one holder, freed by its death, fenced when it is broken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from testbed.errors import EXIT_LEASE, LeaseError
from testbed.rack.lease import LEASE_FILE, Holder, Lease, acquire, break_lease, holder_of
from testbed.timing.clock import run

HOLD = """
import sys, trio
from pathlib import Path
from testbed.rack.lease import acquire
from testbed.timing.clock import run
async def main():
    await acquire(Path(sys.argv[1]), rack="r", run="other-run")
    print("held", flush=True)
    await trio.sleep_forever()
run(main)
"""


def take(folder: Path, name: str = "mine", wait_s: float = 0.0) -> Lease:
    async def main() -> Lease:
        return await acquire(folder, rack="r", run=name, wait_s=wait_s)

    return run(main)


def test_a_second_holder_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    """TC37, TC41: one lease for the whole rack; pid, its start, boot and a nonce are in it."""
    first = take(tmp_path, "first-run")
    with pytest.raises(LeaseError, match="first-run") as refused:
        take(tmp_path)
    holder = refused.value.fields["holder"]
    assert holder["pid"] == os.getpid()
    assert holder["started"] and holder["boot"] and holder["nonce"]
    assert "--wait" in str(refused.value.remedy)
    assert refused.value.exit_code == EXIT_LEASE
    first.release()
    first.release()
    take(tmp_path).release()
    assert holder_of(tmp_path) is None


def test_the_lease_of_a_killed_process_frees_itself(tmp_path: Path) -> None:
    """TC35: kill -9 of the holder needs no time-out and nobody's help."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(LeaseError, match=f"process {other.pid}"):
            take(tmp_path)
        other.send_signal(signal.SIGKILL)
        other.wait()
        take(tmp_path).release()


def test_waiting_ends_when_the_holder_lets_go(tmp_path: Path) -> None:
    told: list[Holder | None] = []

    async def main() -> float:
        first = await acquire(tmp_path, rack="r", run="first")

        async def let_go() -> None:
            await trio.sleep(3)
            first.release()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(let_go)
            second = await acquire(tmp_path, rack="r", run="second", wait_s=10, waiting=told.append)
            second.release()
        return trio.current_time()

    assert run(main, virtual=True) == pytest.approx(3, abs=0.21)
    assert [holder and holder.run for holder in told] == ["first"]


def test_waiting_ends_with_its_time(tmp_path: Path) -> None:
    first = take(tmp_path)

    async def main() -> float:
        with pytest.raises(LeaseError, match="after waiting for 2 s"):
            await acquire(tmp_path, rack="r", run="second", wait_s=2)
        return trio.current_time()

    assert run(main, virtual=True) == pytest.approx(2)
    first.release()


def test_a_holder_whose_lease_was_broken_is_refused_at_its_next_command(tmp_path: Path) -> None:
    """TC38: the loser of the lease cannot talk to the devices any more."""
    kicked = take(tmp_path, "kicked")
    kicked.check()
    broken = break_lease(tmp_path)
    assert broken is not None and broken.run == "kicked"
    with pytest.raises(LeaseError, match="broken by an operator"):
        kicked.check()
    successor = take(tmp_path, "successor")
    with pytest.raises(LeaseError, match=r"run successor .* holds it now"):
        kicked.check()
    kicked.release()  # must not take the successor's record away
    successor.check()
    assert (found := holder_of(tmp_path)) is not None and found.run == "successor"
    successor.release()


def test_the_check_is_cheap(tmp_path: Path) -> None:
    import time

    lease = take(tmp_path)
    start = time.perf_counter()
    for _ in range(1000):
        lease.check()
    assert (time.perf_counter() - start) / 1000 < 100e-6
    lease.release()


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b"{}", b'{"run": 1', b"[]", b'"x"'])
def test_a_file_that_says_nothing_legible_is_just_free(tmp_path: Path, content: bytes) -> None:
    """What stands in the file is for people: only the lock counts."""
    (tmp_path / LEASE_FILE).write_bytes(content)
    assert holder_of(tmp_path) is None
    take(tmp_path).release()
