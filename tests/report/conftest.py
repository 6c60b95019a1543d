"""Runs of recoveries to report on, and terminals of several kinds to report to."""

import io
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from testbed.store.header import phase_descriptions
from testbed.store.reader import StoredRun, open_run
from testbed.store.writer import RunWriter

MakeRun = Callable[..., StoredRun]


class Terminal:
    """A terminal without colour; what was printed on it can be read."""

    def __init__(self, width: int, encoding: str) -> None:
        self._bytes = io.BytesIO()
        self._file = io.TextIOWrapper(self._bytes, encoding=encoding, newline="\n")
        self.console = Console(width=width, force_terminal=False, file=self._file)
        self.encoding = encoding

    def text(self) -> str:
        """What was printed, trailing blanks apart."""
        self._file.flush()
        lines = self._bytes.getvalue().decode(self.encoding).split("\n")
        return "\n".join(line.rstrip() for line in lines)


@pytest.fixture
def terminal() -> Callable[..., Terminal]:
    def terminal(width: int = 100, encoding: str = "utf-8") -> Terminal:
        return Terminal(width, encoding)

    return terminal


@pytest.fixture
def results_dir(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.fixture
def make_run(results_dir: Path) -> MakeRun:
    """Makes a run of recoveries.

    ``phases`` gets a generator and the number of the trial within its point, and returns the
    seconds of each phase; the first trial of a point is a warm-up, the fifth fails.
    """

    def make_run(
        name: str = "20261201-120000-aaaaaa-lumion-failover",
        points: Sequence[Mapping[str, Any]] = ({},),
        trials: int = 10,
        seed: int = 1,
        slow: float = 1.0,
        phases: Callable[[random.Random, int], dict[str, float | None]] | None = None,
        status: str = "passed",
        **header: Any,
    ) -> StoredRun:
        writer = RunWriter.create(
            results_dir,
            {
                "run": name,
                "wall": "2026-12-01T12:00:00+00:00",
                "backend": "mock",
                "seed": 7,
                "virtual": True,
                "playbook": {"name": "lumion-failover", "sha256": "a"},
                "rack": {"name": "mock", "sha256": "b"},
                "phases": phase_descriptions(),
                "measures": {
                    "recovery": {
                        "unit": "s",
                        "from": "fault.injected",
                        "to": "job.first-good-step",
                    }
                },
                **header,
            },
        )
        rng = random.Random(seed)
        t = 0.0
        number = 0
        for point, variables in enumerate(points):
            writer.append({"t": t, "kind": "point.started", "point": point, "vars": variables})
            for turn in range(trials):
                frame = {"trial": number, "point": point, "warmup": turn == 0}
                writer.append({"t": t, "kind": "trial.started", **frame})
                taken = (phases or _phases)(rng, turn)
                taken = {k: None if v is None else v * slow for k, v in taken.items()}
                recovery = sum(value or 0.0 for value in taken.values()) if taken else None
                t += recovery or 1.0
                failed = turn == 4
                writer.append(
                    {
                        "t": t,
                        "kind": "trial.finished",
                        **frame,
                        "status": "failed" if failed else "passed",
                        "measures": {"recovery": recovery},
                        "phases": taken,
                        "error": {"kind": "task", "message": "no spare"} if failed else None,
                    }
                )
                number += 1
        expectation = {"text": "recovery.p95 < 1.2 s", "limit": 1.2, "kind": "expectation"}
        for point in range(len(points)):
            writer.append(
                {"t": t, **expectation, "passed": point == 0, "value": 1.1 + point, "point": point}
            )
        writer.append({"t": t, "kind": "safe-state", "device": "pdu0", "safe": status == "passed"})
        error = None if status == "passed" else {"kind": "device", "message": "pdu0 [lost]"}
        writer.finish({"status": status, "exit_code": 0, "error": error})
        return open_run(writer.folder)

    return make_run


def _phases(rng: random.Random, turn: int) -> dict[str, float | None]:
    return {
        "detect": 0.2 * rng.lognormvariate(0, 0.3),
        "decide": 0.002,
        "program": 0.03,
        "light": 0.025 * rng.lognormvariate(0, 0.2),
        "link-up": 0.3 if turn % 3 else None,
        "regroup": 0.0,
        "restore": 0.5,
        "first-step": 0.12,
    }
