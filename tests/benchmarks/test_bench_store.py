"""What storing and reading runs costs."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from testbed.store.index import RunIndex
from testbed.store.reader import open_run
from testbed.store.writer import RunWriter

TRIALS = 10_000
EVENTS_A_TRIAL = 40
RUNS = 10_000
PHASES = ("detect", "decide", "program", "light", "link-up", "regroup", "restore", "first-step")
TASK_FINISHED: dict[str, Any] = {
    "t": 1.234567891,
    "kind": "task.finished",
    "trial": 3,
    "task": "fabric.connect",
    "name": "wire the slice as a ring",
    "span": 12,
    "status": "ok",
    "elapsed_s": 0.0123,
    "result": {"added": ["host0/p0 - host1/p1"], "sent_s": 0.001, "verified_s": 0.021},
    "error": None,
}


def header(name: str) -> dict[str, Any]:
    return {
        "run": name,
        "backend": "mock",
        "playbook": {"name": "failover"},
        "rack": {"name": "mock"},
        "measures": {"recovery": {"unit": "s"}},
    }


def write_trials(writer: RunWriter, trials: int, other_events: int) -> None:
    rng = random.Random(1)
    for number in range(trials):
        frame = {"trial": number, "point": 0, "warmup": False}
        writer.append({"t": float(number), "kind": "trial.started", **frame})
        for _ in range(other_events):
            writer.append(TASK_FINISHED)
        phases = {name: rng.lognormvariate(-2, 0.3) for name in PHASES}
        measures = {"recovery": sum(phases.values())}
        writer.append(
            {"t": number + 0.9, "kind": "trial.finished", **frame, "status": "passed",
             "measures": measures, "phases": phases, "error": None}
        )  # fmt: skip


def test_append_an_event(benchmark: Any, tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path, header("one"))
    benchmark.pedantic(writer.append, (TASK_FINISHED,), rounds=200, iterations=500)
    writer.close()


def test_store_a_trial_durably(benchmark: Any, tmp_path: Path) -> None:
    """Forty events and one ``fsync``."""
    writer = RunWriter.create(tmp_path, header("one"))

    def trial() -> None:
        write_trials(writer, 1, EVENTS_A_TRIAL)
        writer.sync()

    benchmark.pedantic(trial, rounds=200)
    writer.close()


@pytest.fixture(scope="module")
def big_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    writer = RunWriter.create(tmp_path_factory.mktemp("big"), header("big"))
    write_trials(writer, TRIALS, EVENTS_A_TRIAL)
    writer.finish({"status": "passed", "exit_code": 0, "error": None})
    return writer.folder


def test_open_and_summarise_10000_trials(benchmark: Any, big_run: Path) -> None:
    summary = benchmark.pedantic(lambda: open_run(big_run).summary(), rounds=3)
    assert summary["trials"] == TRIALS


def test_make_the_table_of_10000_trials_from_400000_events(benchmark: Any, big_run: Path) -> None:
    from testbed.store.trials import write_trials as make_table

    benchmark.pedantic(lambda: make_table(open_run(big_run)), rounds=3)


@pytest.fixture(scope="module")
def many_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("many")
    for number in range(RUNS):
        folder = results / f"20261201-{number:06}"
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps({"run": folder.name, "backend": "mock"}))
        (folder / "events.jsonl").write_text(
            '{"t":1.0,"kind":"run.finished","status":"passed","exit_code":0,"error":null}\n'
        )
    RunIndex(results).rebuild()
    return results


def test_list_10000_runs(benchmark: Any, many_runs: Path) -> None:
    rows = benchmark.pedantic(lambda: RunIndex(many_runs).list(), rounds=3)
    assert len(rows) == RUNS


def test_list_the_latest_20_of_10000_runs(benchmark: Any, many_runs: Path) -> None:
    rows = benchmark.pedantic(lambda: RunIndex(many_runs).list(20), rounds=3)
    assert len(rows) == 20
