"""What the commands of ``testbed results`` do, as functions that return records.

The command line only parses, calls one of these and prints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from testbed.errors import StoreError
from testbed.report.compare import Comparison, compare_many
from testbed.report.rules import RuleResult, fail_if
from testbed.store.exports import export_run
from testbed.store.index import RunIndex
from testbed.store.reader import UNFINISHED, StoredRun
from testbed.store.repair import repair
from testbed.store.trials import TrialRow

Notice = Callable[[str], None]


def list_runs(
    results_dir: Path,
    *,
    limit: int | None = 20,
    playbook: str | None = None,
    status: str | None = None,
    notice: Notice | None = None,
) -> list[dict[str, Any]]:
    """Rows of runs, the newest first."""
    return RunIndex(results_dir, notice=notice).list(limit, playbook=playbook, status=status)


def find_run(results_dir: Path, reference: str) -> StoredRun:
    """One run by ``latest``, name, beginning of a name, or path.

    :raises StoreError: when none fits, or several do.
    """
    return RunIndex(results_dir).find(reference)


def find_trial(run: StoredRun, trial: int) -> TrialRow:
    """The row of one trial. :raises StoreError: when the run has no such trial."""
    for row in run.trials():
        if row["trial"] == trial:
            return row
    raise StoreError(f"{run.id} has no trial {trial}", remedy="trials are counted from 0")


def find_point(run: StoredRun, point: int) -> dict[str, Any]:
    """What the summary says of one sweep point. :raises StoreError: when there is none such."""
    points: list[dict[str, Any]] = run.summary()["points"]
    if point >= len(points):
        raise StoreError(f"{run.id} has no sweep point {point}", remedy="points count from 0")
    return points[point]


def show_run(results_dir: Path, reference: str) -> dict[str, Any]:
    """The summary of a run (DESIGN section 10). :raises StoreError: when none fits."""
    return find_run(results_dir, reference).summary()


def compare_runs(
    results_dir: Path,
    references: Sequence[str],
    *,
    rules: Sequence[str] = (),
    across_backends: bool = False,
) -> tuple[list[Comparison], list[RuleResult]]:
    """Each further run against the first, and what becomes of the ``--fail-if`` rules.

    :raises StoreError: when a run is not found, or the runs cannot be compared.
    :raises PlaybookError: when a rule cannot be read; before any run is.
    """
    parsed = [fail_if(rule) for rule in rules]
    index = RunIndex(results_dir)
    runs = [index.find(reference) for reference in references]
    comparisons = compare_many(runs, across_backends=across_backends)
    results = [
        result for comparison in comparisons for rule in parsed for result in rule.check(comparison)
    ]
    return comparisons, results


def comparison_record(
    comparisons: Sequence[Comparison], results: Sequence[RuleResult]
) -> dict[str, Any]:
    """What :func:`compare_runs` found, as JSON-compatible fields."""
    return {
        "comparisons": [comparison.as_record() for comparison in comparisons],
        "rules": [asdict(result) for result in results],
    }


def export(
    results_dir: Path,
    reference: str,
    format_name: str,
    target: Path | None = None,
    *,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a run in another format; says where it is.

    :raises StoreError: when the run or the format is not found, or the file is there already.
    """
    run = find_run(results_dir, reference)
    path = export_run(run, format_name, target, overwrite=overwrite)
    return {"run": run.id, "format": format_name, "path": str(path)}


def rebuild(results_dir: Path) -> dict[str, Any]:
    """Make the index again from the folders."""
    return {"results": str(results_dir), "runs": RunIndex(results_dir).rebuild()}


def repair_runs(results_dir: Path, references: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Close the runs named, or all whose controller died; says what was done to each.

    :raises StoreError: when a run is not found, still goes on, or is damaged.
    """
    index = RunIndex(results_dir)
    names = references or [str(row["run"]) for row in index.list(status=UNFINISHED)]
    return [repair(index.find(name)) for name in names]
