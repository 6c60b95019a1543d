"""Trials as comma-separated values, one row a trial, units in the head of the columns.

Every row names its run and its backend, so that rows put together stay apart. Warm-up, failed and
cut-off trials are there and say so; a value that could not be taken is empty.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from testbed.store.encoding import compact_json
from testbed.store.exports.exporter import Exporter
from testbed.store.reader import StoredRun
from testbed.store.trials import TrialRow


def write(run: StoredRun, path: Path) -> None:
    """Write the trials of a run."""
    variables: dict[str, None] = {}
    measures: dict[str, None] = {}
    phases: dict[str, None] = {}
    for row in run.trials():
        variables.update(dict.fromkeys(row["vars"]))
        measures.update(dict.fromkeys(row["measures"]))
        phases.update(dict.fromkeys(row["phases"]))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            [
                *("run", "backend", "trial", "point", "warmup", "status", "t [s]", "elapsed [s]"),
                *(f"var.{name}" for name in variables),
                *(f"measure.{name} [{run.unit(name)}]" for name in measures),
                *(f"phase.{name} [s]" for name in phases),
                "error",
            ]
        )
        for row in run.trials():
            writer.writerow(
                [
                    *(run.id, run.backend, row["trial"], row["point"], int(row["warmup"])),
                    *(row["status"], row["t"], _cell(row["elapsed_s"])),
                    *(_cell(row["vars"].get(name)) for name in variables),
                    *(_cell(row["measures"].get(name)) for name in measures),
                    *(_cell(row["phases"].get(name)) for name in phases),
                    _error(row),
                ]
            )


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return value if isinstance(value, str | float | int) else compact_json(value)


def _error(row: TrialRow) -> str:
    error = row["error"]
    if isinstance(error, dict):
        return str(error.get("message", error))
    return "" if error is None else str(error)


EXPORTER = Exporter("csv", ".csv", "Trials as comma-separated values, one row a trial.", write)
