"""Reading runs, whole or not."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.errors import StoreError
from testbed.store.reader import open_run
from testbed.store.summary import TrialValues
from testbed.store.writer import RunWriter

Begin = Callable[..., RunWriter]
Finish = Callable[..., Path]


def test_a_finished_run_has_the_status_it_ended_with(finish: Finish) -> None:
    assert open_run(finish(status="failed")).status == "failed"


@pytest.mark.parametrize("length", [10, 65_500, 200_000])
def test_an_end_of_any_length_is_found(begin: Begin, length: int) -> None:
    writer = begin()
    error = {"kind": "device", "message": "x" * length}
    writer.finish({"status": "error", "exit_code": 3, "error": error})
    assert open_run(writer.folder).summary()["error"] == error


def test_a_run_is_running_while_its_writer_lives_and_unfinished_after(begin: Begin) -> None:
    """TC75: a run without an end reads like any other."""
    writer = begin()
    assert open_run(writer.folder).status == "running"
    writer.close()
    run = open_run(writer.folder)
    assert run.status == "unfinished"
    assert run.summary()["measures"]["recovery"]["n"] == 3


def test_the_run_of_a_killed_process_is_unfinished(tmp_path: Path) -> None:
    """TC41: no process id is asked for, so none can be mistaken for another's."""
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from testbed.store.writer import RunWriter\n"
        "RunWriter.create(Path(sys.argv[1]), {'run': 'killed'})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert open_run(tmp_path / "killed").status == "unfinished"


def test_completed_trials_of_an_interrupted_run_are_all_there(begin: Begin) -> None:
    """TC17: and the one that was cut off is shown as such, not counted as completed."""
    writer = begin(trials=({}, {"status": "failed"}, {"status": "unfinished"}))
    writer.close()
    run = open_run(writer.folder)
    assert [row["status"] for row in run.trials()] == ["passed", "failed", "unfinished"]
    summary = run.summary()
    assert (summary["trials"], summary["failed"], summary["unfinished"]) == (2, 1, 1)


def test_damage_before_the_end_is_named_with_its_line(begin: Begin) -> None:
    writer = begin()
    writer.close()
    log = writer.folder / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    lines[1] = b"\0" * 20 + b"\n"
    log.write_bytes(b"".join(lines))
    with pytest.raises(StoreError, match=r"events\.jsonl:2"):
        list(open_run(writer.folder).events())


def test_rubbish_at_the_end_after_a_power_cut_is_passed_over(begin: Begin) -> None:
    writer = begin()
    writer.close()
    whole = list(open_run(writer.folder).events())
    with (writer.folder / "events.jsonl").open("ab") as log:
        log.write(b"\0" * 30 + b"\n" + b"\0" * 10)
    run = open_run(writer.folder)
    assert list(run.events()) == whole
    assert run.status == "unfinished"


@pytest.mark.parametrize("content", [None, "", "[]", '{"run": ', "\x00"])
def test_a_folder_without_a_readable_header_is_refused_by_name(
    tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(StoreError, match=str(tmp_path)):
        open_run(tmp_path)


def test_the_summary_is_the_agreed_record(finish: Finish) -> None:
    values = [0.5, 0.7, 0.9]
    trials = [{"warmup": True, "measures": {"recovery": 99.0}}]
    trials += [{"measures": {"recovery": value, "rate": None}} for value in values]
    trials += [{"status": "failed", "measures": {"recovery": 50.0}}]
    summary = open_run(finish(trials=trials)).summary()
    json.dumps(summary, allow_nan=False)
    assert summary["run"] == "20261201-120000-aaaa00-failover"
    assert summary["playbook"] == "failover"
    assert (summary["status"], summary["backend"], summary["rack"]) == ("passed", "mock", "bench")
    assert (summary["seed"], summary["virtual"]) == (7, True)
    assert (summary["trials"], summary["failed"], summary["warmup"]) == (4, 1, 1)
    recovery = summary["measures"]["recovery"]
    assert recovery["unit"] == "s"
    assert (recovery["n"], recovery["min"], recovery["median"]) == (3, 0.5, 0.7)
    assert {"mean", "p95", "p99", "max", "sd", "ci_low", "ci_high"} <= recovery.keys()
    assert summary["measures"]["rate"]["unit"] == "b/s"
    assert (summary["measures"]["rate"]["n"], summary["measures"]["rate"]["missing"]) == (0, 3)
    assert summary["phases"]["detect"]["n"] == 3
    assert (summary["dirty"], summary["error"], summary["expectations"]) == ([], None, [])


def test_points_of_a_sweep_are_told_apart(finish: Finish) -> None:
    trials = [
        {"point": point, "measures": {"recovery": float(10 * point + n)}}
        for point in range(2)
        for n in range(3)
    ]
    folder = finish(trials=trials, points=[{"policy": "lumion"}, {"policy": "restart"}])
    summary = open_run(folder).summary()
    assert [point["vars"]["policy"] for point in summary["points"]] == ["lumion", "restart"]
    medians = [point["measures"]["recovery"]["median"] for point in summary["points"]]
    assert medians == [1.0, 11.0]
    assert summary["measures"]["recovery"]["n"] == 6


def test_outliers_are_named_by_trial(finish: Finish) -> None:
    trials = [{"warmup": True}, *({"measures": {"recovery": 1.0 + n / 100}} for n in range(8))]
    trials.append({"measures": {"recovery": 50.0}})
    summary = open_run(finish(trials=trials)).summary()
    assert summary["measures"]["recovery"]["outliers"] == [9]


def test_expectations_and_devices_that_are_not_safe_are_told(begin: Begin) -> None:
    writer = begin()
    for device, safe in (("sw0", False), ("pdu0", False), ("sw0", True)):
        writer.append({"t": 4.0, "kind": "safe-state", "device": device, "safe": safe})
    writer.append(
        {
            "t": 4.0,
            "kind": "expectation",
            "text": "recovery.p95 < 1.2 s",
            "passed": True,
            "value": 0.5,
            "limit": 1.2,
            "point": 0,
        }
    )
    writer.finish({"status": "passed", "exit_code": 0, "error": {"kind": "x", "message": "y"}})
    summary = open_run(writer.folder).summary()
    assert summary["dirty"] == ["pdu0"]  # sw0 was brought back in the end
    assert summary["expectations"][0]["passed"] is True
    assert summary["error"] == {"kind": "x", "message": "y"}


def test_events_of_trials_are_counted_as_their_rows_are(finish: Finish) -> None:
    """So that expectations, checked while a run goes on, and its summary use the same values."""
    trials = [{"warmup": True}, {"status": "failed"}, {"measures": {"recovery": "fast"}}]
    trials += [{"measures": {"recovery": float(n)}} for n in range(5)]
    run = open_run(finish(trials=trials))
    counted = TrialValues()
    for event in run.events():
        if event["kind"] == "trial.finished":
            counted.add(event)
    assert counted.record("measures", "recovery") == run.summary()["measures"]["recovery"]
    summary = counted.summary("measures", "recovery")
    assert (summary.n, summary.missing, summary.get("median")) == (5, 1, 2.0)


def test_a_log_message_cannot_pass_for_a_trial(begin: Begin) -> None:
    writer = begin(trials=({},))
    writer.append({"t": 1.0, "kind": "log", "message": '"kind":"trial.finished"'})
    writer.append({"t": 1.0, "kind": "log", "nested": {"kind": "trial.finished"}})
    writer.close()
    assert len(list(open_run(writer.folder).trials())) == 1
