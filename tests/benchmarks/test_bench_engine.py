"""What the engine itself costs: tasks that do nothing, trials that do nothing, a guarded reading.

The goal: 150 µs a no-op task over 1,000 tasks, stored durably (other test frameworks of the
field take 180 µs a phase, and 925 µs a reading, on such a machine).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from testbed.engine.run import RunOptions, execute
from testbed.hal.capabilities import Host
from testbed.playbook.model import Playbook, TaskStep
from testbed.playbook.task import TaskArgs, TaskPlan, TaskSpec
from testbed.rack.loader import load_rack
from testbed.source.places import Place

TASKS = 1000


class NoArgs(TaskArgs):
    """None."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def playbook(run: Any, *, tasks: int, trials: int) -> Playbook:
    spec = TaskSpec("noop", "", NoArgs, run, plan=lambda context, args: TaskPlan(devices=()))
    step = TaskStep("noop", Place("b", 1, 1), spec=spec, args={}, fixed=NoArgs())
    return Playbook("bench", "b", "", "", "mock", tasks=(step,) * tasks, trials=trials)


async def noop(context: Any, args: Any) -> None:
    """Does nothing."""


def execute_in(folder: Path, book: Playbook) -> Any:
    outcome = execute(
        RunOptions(
            book,
            load_rack("mock"),
            state_dir=folder / "state",
            results_dir=folder / "results",
        )
    )
    assert outcome.status == "passed", outcome.error
    return outcome


def test_a_thousand_tasks_that_do_nothing(benchmark: Any, tmp_path: Path) -> None:
    """From the first task to the end of the trial, made durable."""
    from testbed.store.reader import open_run

    book = playbook(noop, tasks=TASKS, trials=1)
    outcome = benchmark.pedantic(execute_in, (tmp_path, book), rounds=5, warmup_rounds=1)
    best_s = []
    for folder in outcome.folder.parent.iterdir():
        if folder.is_dir():
            events = list(open_run(folder).events())
            times = [e["t"] for e in events if e["kind"] in ("trial.started", "run.finished")]
            best_s.append(times[-1] - times[0])
    per_task_s = min(best_s) / TASKS
    benchmark.extra_info["us_per_task"] = per_task_s * 1e6


def test_a_thousand_trials_that_do_nothing(benchmark: Any, tmp_path: Path) -> None:
    """Each is stored durably before the next starts."""
    book = playbook(noop, tasks=1, trials=1000)
    benchmark.pedantic(execute_in, (tmp_path, book), rounds=1)


def test_a_thousand_guarded_readings(benchmark: Any, tmp_path: Path) -> None:
    """Guard, deadline and state, on a simulated host in virtual time."""

    async def read(context: Any, args: Any) -> None:
        host = context.device("host0", Host)
        for _ in range(1000):
            await host.health()

    book = playbook(read, tasks=1, trials=1)

    def virtual() -> Any:
        return execute(
            RunOptions(
                book,
                load_rack("mock"),
                state_dir=tmp_path / "state",
                results_dir=tmp_path / "results",
                virtual=True,
            )
        )

    assert benchmark.pedantic(virtual, rounds=3).status == "passed"
