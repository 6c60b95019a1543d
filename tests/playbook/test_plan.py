"""Plans: devices, changes, times and unknowns, without touching a device."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import PlaybookError
from testbed.playbook.loader import load_playbook
from testbed.playbook.plan import Plan, make_plan

PLAYBOOKS = Path(__file__).parents[2] / "playbooks"


@pytest.fixture
def plan(load: Callable[..., Any]) -> Callable[..., Plan]:
    def plan_text(text: str, **options: Any) -> Plan:
        return make_plan(*load(text), **options)

    return plan_text


def test_what_a_plan_tells(plan: Callable[..., Plan]) -> None:
    """TC52: steps, devices, lease, deadlines and estimated time at once."""
    made = plan(
        """
trials: 3
warmup: 1
tasks:
  - fabric.connect: {ring: [host0, host1]}
  - wait: 2 s
"""
    )
    connect, wait = made.points[0].tasks
    assert made.devices == ("ocs", "host0", "host1")
    assert made.backends["ocs"] == "mock"
    assert made.lease == "mock"
    assert connect.devices == ("ocs", "host0", "host1")
    assert any("host0.p1" in line and "up" in line for line in connect.changes)
    assert wait.estimate_s == 2.0
    assert made.points[0].estimate_s == pytest.approx(3.0)
    assert made.estimate_s == pytest.approx(12.0)
    assert made.complete
    assert made.deadlines_nest
    assert connect.nested_deadlines_s == {"link-up": 10.0}


def test_later_tasks_see_the_links_of_earlier_ones(plan: Callable[..., Plan]) -> None:
    made = plan(
        """
tasks:
  - fabric.connect: {ring: [host0, host1]}
  - fabric.connect: {ring: [host0, host1]}
  - fabric.disconnect: {hosts: [host0]}
"""
    )
    first, again, away = made.points[0].tasks
    assert first.changes
    assert again.changes == ()
    assert away.changes


def test_results_are_unknown_until_run(plan: Callable[..., Plan]) -> None:
    """TC50: a step that needs an earlier result does not break the plan."""
    made = plan(
        """
tasks:
  - host.health: host0
    register: health
  - host.wait-boot: {host: host0, not_boot: "{{ health.boot_id }}"}
    when: health.uptime_s > 100
  - wait: "{{ item }}"
    loop: "{{ [health.uptime_s] }}"
"""
    )
    _, boot, wait = made.points[0].tasks
    assert boot.devices is None
    assert boot.condition == "health.uptime_s > 100"
    assert set(boot.unknown) == {"whether it runs", "its arguments", "its time"}
    assert wait.repeats is None
    assert "the items of its loop" in wait.unknown
    assert not made.complete
    # What may use any device needs them all.
    assert made.devices == ("ocs", "host0", "host1", "host2", "host3", "pdu")


def test_conditions_that_are_known(plan: Callable[..., Plan]) -> None:
    made = plan(
        """
sweep: {mode: [fast, slow]}
tasks:
  - wait: 10 s
    when: mode == 'slow'
  - host.health: host0
    when: mode == 'fast'
"""
    )
    fast, slow = made.points
    assert [task.skipped for task in fast.tasks] == [True, False]
    assert [task.skipped for task in slow.tasks] == [False, True]
    assert fast.estimate_s < 1 < slow.estimate_s
    assert slow.vars == {"mode": "slow"}
    assert made.devices == ("host0",)


def test_loops_parallels_and_rescues(plan: Callable[..., Plan]) -> None:
    made = plan(
        """
tasks:
  - wait: "{{ item }}"
    loop: [1, 2, 3]
  - parallel:
      - wait: 5 s
      - wait: 4 s
  - block:
      - wait: 1 s
    rescue:
      - wait: 100 s
    always:
      - wait: 2 s
always:
  - host.health: host1
"""
    )
    tasks = made.points[0].tasks
    assert [(task.section, task.estimate_s) for task in tasks] == [
        ("tasks", 6.0),
        ("tasks", 5.0),
        ("tasks", 4.0),
        ("tasks", 1.0),
        ("rescue of tasks", 100.0),
        ("tasks", 2.0),
        ("always", 0.1),
    ]
    assert tasks[0].repeats == 3
    # Parallel parts take as long as the longest; a rescue is not counted on.
    assert made.estimate_s == pytest.approx(6 + 5 + 1 + 2 + 0.1)


def test_tags_choose(plan: Callable[..., Plan]) -> None:
    text = """
tasks:
  - wait: 1 s
    tags: quick
  - wait: 10 s
    tags: [slow]
  - wait: 100 s
"""
    assert plan(text).estimate_s == 111.0
    assert plan(text, tags={"quick"}).estimate_s == 1.0
    assert plan(text, skip_tags={"slow"}).estimate_s == 101.0
    with pytest.raises(PlaybookError, match="no step has the tag 'quik'"):
        plan(text, tags={"quik"})


def test_what_cannot_be_is_told_before_anything_runs(faults: Callable[..., str]) -> None:
    found = faults("tasks:\n  - fabric.connect: {ring: [host0, host0]}\n")
    assert "playbook.yaml:4:5: a ring needs two or more different hosts" in found


def test_what_only_may_be_impossible_is_no_fault(plan: Callable[..., Plan]) -> None:
    made = plan(
        """
tasks:
  - host.health: host0
    register: health
  - fabric.connect: {ring: [host0, host0]}
    when: health.uptime_s < 0
"""
    )
    assert any("whether it can be done" in line for line in made.points[0].tasks[1].unknown)


@pytest.mark.parametrize("path", sorted(PLAYBOOKS.glob("*.yaml")), ids=lambda path: path.stem)
@pytest.mark.parametrize("rack", ["mock", "racks/bench4.yaml", "racks/rack16.yaml"])
def test_shipped_playbooks(path: Path, rack: str) -> None:
    assignments = {}
    if path.stem == "switch-soak" and "bench4" in rack:
        assignments = {"switch": "mesh0"}
    reference = rack if rack == "mock" else str(PLAYBOOKS / rack)
    playbook, loaded = load_playbook(path, rack=reference, assignments=assignments)
    made = make_plan(playbook, loaded)
    assert made.deadlines_nest
    assert made.devices
    assert len(made.points) == len(playbook.points())
    record = json.loads(json.dumps(made.as_record()))
    assert record["deadlines_nest"] is True
    assert record["devices"][0].keys() == {"name", "driver", "backend"}
    assert make_plan(playbook, loaded).as_record() == made.as_record()
