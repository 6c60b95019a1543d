"""Runs to read."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.store.writer import RunWriter

Trial = Mapping[str, Any]
MakeWriter = Callable[..., RunWriter]

HEADER: dict[str, Any] = {
    "wall": "2026-12-01T12:00:00+00:00",
    "backend": "mock",
    "seed": 7,
    "virtual": True,
    "playbook": {"name": "failover", "sha256": "a"},
    "rack": {"name": "bench", "sha256": "b"},
    "measures": {
        "recovery": {"unit": "s", "from": "fault.injected", "to": "job.first-good-step"},
        "rate": {"unit": "b/s", "value": "{{ flow.rate }}"},
    },
}


def append_trial(writer: RunWriter, number: int, trial: Trial) -> None:
    """One second of a run: a trial with whatever ``trial`` says, and its defaults else."""
    common = {"trial": number, "point": trial.get("point", 0), "warmup": trial.get("warmup", False)}
    writer.append({"t": float(number), "kind": "trial.started", **common})
    writer.append({"t": number + 0.25, "kind": "mark", "trial": number, "name": "fault.injected"})
    if trial.get("status") == "unfinished":
        return
    writer.append(
        {
            "t": number + 0.75,
            "kind": "trial.finished",
            **common,
            "status": trial.get("status", "passed"),
            "measures": trial.get("measures", {"recovery": 0.5}),
            "phases": trial.get("phases", {"detect": 0.1, "decide": None}),
            "error": trial.get("error"),
        }
    )


@pytest.fixture
def results_dir(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.fixture
def begin(results_dir: Path) -> MakeWriter:
    """Starts a run with some trials and leaves it open."""

    def begin(
        name: str = "20261201-120000-aaaa00-failover",
        trials: Sequence[Trial] = ({}, {}, {}),
        points: Sequence[Mapping[str, Any]] = ({},),
        **header: Any,
    ) -> RunWriter:
        writer = RunWriter.create(results_dir, {**HEADER, "run": name, **header})
        writer.append({"t": 0.0, "kind": "run.started", "run": name})
        for number, variables in enumerate(points):
            writer.append(
                {"t": 0.0, "kind": "point.started", "point": number, "vars": dict(variables)}
            )
        for number, trial in enumerate(trials):
            append_trial(writer, number, trial)
        return writer

    return begin


@pytest.fixture
def finish(begin: MakeWriter) -> Callable[..., Path]:
    """Makes a whole run; returns its folder."""

    def finish(*args: Any, status: str = "passed", **options: Any) -> Path:
        writer = begin(*args, **options)
        writer.finish({"status": status, "exit_code": 0, "error": None})
        return writer.folder

    return finish
