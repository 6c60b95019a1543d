"""Real processes on a mock rack in real time: signals, kill -9, recovery, two runs at once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.engine.recover import dirty, recover
from testbed.engine.session import rack_session
from testbed.errors import EXIT_INTERRUPTED, EXIT_INTERRUPTED_DIRTY, EXIT_LEASE, EXIT_OK
from testbed.hal.capabilities import Host, OpticalSwitch, PowerController
from testbed.hal.types import Circuit, OutletState
from testbed.playbook.loader import load_playbook
from testbed.rack.loader import load_rack
from testbed.store.index import RunIndex
from testbed.store.reader import open_run
from testbed.timing.clock import run

PLAYBOOKS = Path(__file__).parents[2] / "playbooks"

CONTROLLER = """
import sys
from pathlib import Path
from testbed.engine.run import RunOptions, execute
from testbed.playbook.loader import load_playbook
file, folder = sys.argv[1], Path(sys.argv[2])
playbook, rack = load_playbook(file)
outcome = execute(RunOptions(
    playbook, rack, state_dir=folder / "state", results_dir=folder / "results",
    observers=(lambda event: print(event["kind"], event.get("task", ""), flush=True),),
))
if outcome.error:
    print(outcome.error, file=sys.stderr)
print("DIRTY", *outcome.dirty, flush=True)
sys.exit(outcome.exit_code)
"""

PLAYBOOK = """
schema: testbed/v1
name: held
rack: mock
trials: 2
tasks:
  - fabric.connect: {ring: [host0, host1]}
  - power.off: {host: host2}
  - job.start: {id: j, hosts: [host0, host1], options: {start: 50 ms, form_cold: 20 ms}}
  - wait: 60 s
always:
  - wait: 1 s
  - job.stop: {id: j}
"""


class Controller:
    """A run in a process of its own; its events are read from its output."""

    def __init__(self, playbook: Path, folder: Path) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", CONTROLLER, str(playbook), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def until(self, kind: str, task: str = "") -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.split() == [kind, *([task] if task else [])]:
                return
        raise AssertionError(f"no {kind} {task} came: {self.process.communicate()[1]}")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, within_s: float = 20.0) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=within_s)
        return self.process.returncode, out, err

    @property
    def stored(self) -> Any:
        (folder,) = [p for p in (self.folder / "results").iterdir() if p.is_dir()]
        return open_run(folder)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Controller]:
    """A run that holds light, a host without power and a job, for a minute."""
    path = tmp_path / "held.yaml"
    path.write_text(PLAYBOOK)
    controller = Controller(path, tmp_path)
    yield controller
    if controller.process.poll() is None:
        controller.process.kill()
        controller.process.communicate()


async def _look(state_dir: Path) -> tuple[frozenset[Circuit], set[OutletState], int]:
    async with rack_session(
        load_rack("mock"), owner="test", state_dir=state_dir, devices=()
    ) as session:
        circuits = await session.device("ocs", OpticalSwitch).circuits()
        outlets = await session.device("pdu", PowerController).outlets()
        count = 0
        for name in ("host0", "host1"):
            count += len(await session.device(name, Host).processes())
        return circuits, set(outlets.values()), count


SAFE: tuple[Any, ...] = (frozenset(), {OutletState.ON}, 0)


@pytest.mark.parametrize(
    ("kind", "task"),
    [("run.started", ""), ("task.started", "fabric.connect"), ("task.started", "wait"),
     ("cleanup", "")],
)  # fmt: skip
def test_once(held: Controller, kind: str, task: str) -> None:
    """DESIGN 7.5. TC01, TC06, TC11: at preflight, the first task, a later one, in cleanup."""
    if kind == "cleanup":
        held.until("task.started", "wait")
        held.signal(signal.SIGINT)
        held.until("task.started", "wait")  # of the cleanup
        code, out, err = held.end()
    else:
        held.until(kind, task)
        held.signal(signal.SIGINT)
        code, out, err = held.end()
    assert (code, err) == (EXIT_INTERRUPTED, "")  # TC07: no traceback
    assert "DIRTY\n" in out
    assert held.stored.status == "interrupted"
    assert dirty(load_rack("mock"), held.folder / "state") == []
    assert run(_look, held.folder / "state") == SAFE


def test_twice_then_recover(held: Controller) -> None:
    """DESIGN 7.5: the rest of the cleanup is skipped, devices are named, and come back."""
    held.until("task.started", "wait")
    held.signal(signal.SIGINT)
    held.until("task.started", "wait")
    held.signal(signal.SIGINT)
    code, out, _ = held.end()
    assert code == EXIT_INTERRUPTED_DIRTY
    named = out.splitlines()[-1].split()[1:]
    assert {"ocs", "pdu", "host0", "host1"} <= set(named)
    rack, state = load_rack("mock"), held.folder / "state"
    (left,) = dirty(rack, state)
    assert set(left.devices) <= set(named)
    report = run(recover, rack, state)
    assert report.unsafe == {}
    assert dirty(rack, state) == []
    assert run(_look, state) == SAFE


def test_kill_9_then_recover(held: Controller) -> None:
    """DESIGN 7.6. TC35, TC73: the lease is free at once, results are readable and writable, and
    the journal lets `recover` undo what the run had changed."""
    held.until("task.started", "wait")
    held.signal(signal.SIGKILL)
    held.end()
    rack, state = load_rack("mock"), held.folder / "state"
    circuits, outlets, processes = run(_look, state)
    assert circuits and OutletState.OFF in outlets and processes == 2
    (left,) = dirty(rack, state)
    assert set(left.devices) == {"ocs", "pdu", "host0", "host1"}
    assert held.stored.status != "passed" and len(list(held.stored.events())) > 5
    RunIndex(held.folder / "results").rebuild()
    report = run(recover, rack, state)
    assert set(report.safe) == set(left.devices) and report.unsafe == {}
    assert run(_look, state) == SAFE
    assert run(recover, rack, state).devices == {}  # nothing is left to do


def test_a_killed_recovery_can_be_done_again(held: Controller) -> None:
    held.until("task.started", "wait")
    held.signal(signal.SIGKILL)
    held.end()
    state = held.folder / "state"
    script = (
        "import sys, os, trio\nfrom pathlib import Path\n"
        "from testbed.engine.recover import recover\nfrom testbed.rack.loader import load_rack\n"
        "from testbed.timing.clock import run\n"
        "run(recover, load_rack('mock'), Path(sys.argv[1]))\n"
    )
    environment = dict(os.environ)
    with subprocess.Popen([sys.executable, "-c", script, str(state)], env=environment) as process:
        deadline = time.monotonic() + 10
        journal = state / "racks" / "mock.mock" / "journal"
        while process.poll() is None and len(list(journal.iterdir())) < 2:
            assert time.monotonic() < deadline
        process.kill()
    rack = load_rack("mock")
    assert dirty(rack, state)
    assert run(recover, rack, state).unsafe == {}
    assert run(_look, state) == SAFE


def test_two_runs_cannot_hold_one_rack(held: Controller, tmp_path: Path) -> None:
    """TC35, TC37: the second is told who holds it."""
    held.until("task.started", "wait")
    code, _, err = Controller(tmp_path / "held.yaml", tmp_path).end()
    assert code == EXIT_LEASE
    assert f"process {held.process.pid}" in err and "-held" in err


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_interrupted_at_a_hundred_random_instants(tmp_path: Path) -> None:
    """Cleanup starts within 100 ms of the signal, the process ends within 2 s on top of what the
    devices in its cleanup take, devices are safe or named, and the results are readable."""
    playbook, _ = load_playbook(PLAYBOOKS / "failover.yaml")
    draw = random.Random(7)
    for number in range(int(os.environ.get("TESTBED_INSTANTS", "100"))):
        folder = tmp_path / str(number)
        controller = Controller(PLAYBOOKS / "failover.yaml", folder)
        controller.until("run.started")
        time.sleep(draw.uniform(0, 6))
        sent = time.monotonic()
        wall = time.time()
        controller.signal(signal.SIGINT)
        code, out, err = controller.end(60)
        took_s = time.monotonic() - sent
        assert code in (EXIT_OK, EXIT_INTERRUPTED), err
        stored = controller.stored
        events = list(stored.events())
        origin = _wall(stored.header["wall"])
        cut_s = wall - origin
        assert stored.playbook == playbook.name
        if code == EXIT_OK:
            continue
        after = [e for e in events if e["t"] >= cut_s and e["kind"] in ("cleanup", "safe-state")]
        starts = [e["t"] - e.get("elapsed_s", 0.0) for e in after if e["kind"] == "cleanup"]
        if starts and any(e["kind"] == "trial.started" for e in events):
            assert min(starts) - cut_s < 0.1, f"instant {number}: {min(starts) - cut_s}"
        devices_s = sum(
            e["elapsed_s"] for e in events if e["kind"] in ("device", "cleanup") and e["t"] >= cut_s
        )
        assert took_s <= 2.0 + devices_s, f"instant {number}: {took_s} s"
        assert "DIRTY\n" in out
        assert dirty(load_rack("mock"), folder / "state") == []


def _wall(text: str) -> float:
    import datetime

    return datetime.datetime.fromisoformat(text).timestamp()


def test_json_of_a_report_can_be_written(held: Controller) -> None:
    held.until("task.started", "wait")
    held.signal(signal.SIGKILL)
    held.end()
    report = run(recover, load_rack("mock"), held.folder / "state")
    record = json.loads(json.dumps(report.as_record()))
    assert record["runs"][0]["run"].endswith("-held") and record["unsafe"] == {}
