"""What the commands of ``testbed results`` do."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.errors import PlaybookError, StoreError
from testbed.report import results
from testbed.store.reader import StoredRun
from testbed.store.writer import RunWriter

MakeRun = Callable[..., StoredRun]


def test_runs_are_listed_and_shown(make_run: MakeRun, results_dir: Path) -> None:
    run = make_run()
    assert [row["run"] for row in results.list_runs(results_dir)] == [run.id]
    assert results.show_run(results_dir, "latest") == run.summary()


def test_runs_are_compared_and_judged(make_run: MakeRun, results_dir: Path) -> None:
    make_run("a", trials=20)
    make_run("b", trials=20, slow=2)
    comparisons, verdicts = results.compare_runs(
        results_dir, ["a", "b"], rules=["recovery.median > 1.1x"]
    )
    assert [verdict.failed for verdict in verdicts] == [True]
    record = results.comparison_record(comparisons, verdicts)
    assert json.loads(json.dumps(record, allow_nan=False))["comparisons"][0]["new"] == "b"


def test_a_rule_that_cannot_be_read_is_told_before_runs_are_looked_for(results_dir: Path) -> None:
    with pytest.raises(PlaybookError):
        results.compare_runs(results_dir, ["a", "b"], rules=["rubbish"])


def test_a_run_is_exported(make_run: MakeRun, results_dir: Path, tmp_path: Path) -> None:
    run = make_run()
    record = results.export(results_dir, "latest", "csv", tmp_path)
    assert record == {"run": run.id, "format": "csv", "path": str(tmp_path / f"{run.id}.csv")}
    with pytest.raises(StoreError, match="exists already"):
        results.export(results_dir, "latest", "csv", tmp_path)


def test_the_index_is_made_again(make_run: MakeRun, results_dir: Path) -> None:
    make_run()
    assert results.rebuild(results_dir) == {"results": str(results_dir), "runs": 1}


def test_all_runs_that_were_cut_off_are_repaired(make_run: MakeRun, results_dir: Path) -> None:
    """TC75: whole runs, and those that still go on, are left alone."""
    make_run("whole")
    RunWriter.create(results_dir, {"run": "died"}).close()
    going_on = RunWriter.create(results_dir, {"run": "going-on"})
    (record,) = results.repair_runs(results_dir)
    assert (record["run"], record["status"]) == ("died", "interrupted")
    assert results.repair_runs(results_dir) == []
    going_on.close()
