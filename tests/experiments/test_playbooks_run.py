"""The playbooks that ship, run on the mock devices in virtual time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.engine.run import RunOptions, execute
from testbed.playbook.loader import load_playbook
from testbed.store.reader import open_run
from testbed.timing.phases import phase_names

PLAYBOOKS = Path(__file__).parents[2] / "playbooks"
RACKS = ("mock", str(PLAYBOOKS / "racks" / "bench4.yaml"), str(PLAYBOOKS / "racks" / "rack16.yaml"))


def run_playbook(
    name: str, folder: Path, *, rack: str = "mock", trials: int | None = None, **kw: Any
) -> Any:
    playbook, loaded = load_playbook(
        PLAYBOOKS / name, rack=rack, assignments=kw.pop("assignments", {})
    )
    if trials is not None:
        playbook = dataclasses.replace(playbook, trials=trials)
    return execute(
        RunOptions(
            playbook,
            loaded,
            seed=kw.pop("seed", 7),
            virtual=True,
            results_dir=folder / "results",
            state_dir=folder / "state",
            **kw,
        )
    )


def events_of(folder: Path) -> Iterator[str]:
    for line in (folder / "events.jsonl").read_text().splitlines():
        if '"run.started"' not in line:  # has the run's id
            yield line


@pytest.mark.parametrize("rack", RACKS)
def test_lumion_failover_meets_its_expectations(rack: str, tmp_path: Path) -> None:
    """TC82: the waterfall has every phase."""
    outcome = run_playbook("failover.yaml", tmp_path, rack=rack)
    assert outcome.exit_code == 0, outcome.error
    summary = open_run(outcome.folder).summary()
    assert summary["trials"] == 10
    assert {name for name, phase in summary["phases"].items() if phase["n"] == 10} == set(
        phase_names()
    )
    assert all(expectation["passed"] for expectation in summary["expectations"])


def test_one_seed_gives_one_event_log(tmp_path: Path) -> None:
    runs = [
        run_playbook("failover.yaml", tmp_path / str(n), trials=3, seed=seed)
        for n, seed in enumerate((7, 7, 8))
    ]
    first, again, other = (list(events_of(run.folder)) for run in runs)
    assert first == again
    assert first != other


@pytest.mark.parametrize("fault", ["power-off", "gpu-xid", "process-hang"])
def test_other_faults_are_recovered_from_within_the_same_limits(fault: str, tmp_path: Path) -> None:
    outcome = run_playbook("failover.yaml", tmp_path, trials=3, assignments={"fault": fault})
    assert outcome.status in ("passed", "failed")  # an expectation may fail, the run must not
    summary = open_run(outcome.folder).summary()
    assert summary["measures"]["recovery"]["n"] == 3
    assert summary["measures"]["recovery"]["max"] < 1.5


def test_policies_are_compared_over_faults(tmp_path: Path) -> None:
    outcome = run_playbook("failover-policies.yaml", tmp_path, trials=2)
    assert outcome.exit_code == 0, outcome.error
    points = open_run(outcome.folder).summary()["points"]
    assert len(points) == 12
    median = {
        (point["vars"]["policy"], point["vars"]["fault"]): point["measures"]["recovery"]["median"]
        for point in points
    }
    for fault in ("process-kill", "power-off", "gpu-xid"):
        assert all(
            median["lumion", fault] < median[policy, fault]
            for policy in ("morphlux", "restart", "migrate")
        )


@pytest.mark.parametrize("name", ["smoke.yaml", "power-cycle.yaml", "switch-soak.yaml"])
def test_the_other_playbooks_pass(name: str, tmp_path: Path) -> None:
    outcome = run_playbook(name, tmp_path)
    assert outcome.exit_code == 0, outcome.error
