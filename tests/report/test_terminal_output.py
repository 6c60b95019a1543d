"""What is printed, sign by sign, on a wide UTF-8 terminal and on a narrow ASCII one.

After a change on purpose: ``UPDATE_GOLDEN=1 pytest tests/report/test_terminal_output.py``, and
read the difference before it is committed.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from testbed.report.comparisons import render_comparison, render_rules
from testbed.report.results import compare_runs, list_runs
from testbed.report.tables import render_runs, render_summary
from testbed.report.waterfall import render_waterfall
from testbed.store.reader import StoredRun

GOLDEN = Path(__file__).parent / "golden"
SWEEP = [{"policy": p, "fault": f} for p in ("lumion", "restart") for f in ("xid", "power-off")]
MakeRun = Callable[..., StoredRun]


def waterfall(make_run: MakeRun, results_dir: Path, console: Console) -> None:
    render_waterfall(make_run(), console)


def waterfall_of_a_trial(make_run: MakeRun, results_dir: Path, console: Console) -> None:
    render_waterfall(make_run(), console, trial=4)


def waterfalls_of_a_sweep(make_run: MakeRun, results_dir: Path, console: Console) -> None:
    render_waterfall(make_run(points=SWEEP[:2], trials=4), console)


def summary(make_run: MakeRun, results_dir: Path, console: Console) -> None:
    render_summary(make_run(status="error").summary(), console)


def summary_of_a_sweep(make_run: MakeRun, results_dir: Path, console: Console) -> None:
    render_summary(make_run(points=SWEEP).summary(), console)


def runs(make_run: MakeRun, results_dir: Path, console: Console) -> None:
    make_run()
    make_run("20261201-120500-bbbbbb-lumion-failover", status="failed", virtual=False)
    render_runs(list_runs(results_dir), console)


def comparison(make_run: MakeRun, results_dir: Path, console: Console) -> None:
    make_run(trials=20)
    changed = {"name": "lumion-failover", "sha256": "c"}
    make_run("20261201-120500-bbbbbb-x", trials=20, seed=2, slow=1.5, playbook=changed)
    rules = ["recovery.median > 1.1x", "detect.p95 > 5 s"]
    comparisons, results = compare_runs(results_dir, ["20261201-1200", "latest"], rules=rules)
    render_comparison(comparisons[0], console)
    render_rules(results, console)


SHOWN = [
    waterfall, waterfall_of_a_trial, waterfalls_of_a_sweep, summary, summary_of_a_sweep, runs,
    comparison,
]  # fmt: skip


@pytest.mark.parametrize(
    ("width", "encoding"), [(100, "utf-8"), (80, "ascii")], ids=["wide", "narrow"]
)
@pytest.mark.parametrize("show", SHOWN)
def test_output_is_the_golden_one(
    show: Callable[..., None],
    width: int,
    encoding: str,
    make_run: MakeRun,
    results_dir: Path,
    terminal: Callable[..., Any],
) -> None:
    screen = terminal(width, encoding)
    show(make_run, results_dir, screen.console)
    golden = GOLDEN / f"{show.__name__}-{width}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(screen.text(), "utf-8")
    assert screen.text() == golden.read_text("utf-8")


@pytest.mark.parametrize("show", SHOWN)
@pytest.mark.parametrize("width", [80, 100, 140])
def test_no_line_is_longer_than_the_terminal(
    show: Callable[..., None],
    width: int,
    make_run: MakeRun,
    results_dir: Path,
    terminal: Callable[..., Any],
) -> None:
    screen = terminal(width)
    show(make_run, results_dir, screen.console)
    assert max(map(len, screen.text().split("\n"))) <= width


@pytest.mark.parametrize("show", SHOWN)
def test_the_backend_is_always_told(
    show: Callable[..., None],
    make_run: MakeRun,
    results_dir: Path,
    terminal: Callable[..., Any],
) -> None:
    screen = terminal(80, "ascii")
    show(make_run, results_dir, screen.console)
    assert "mock" in screen.text()
