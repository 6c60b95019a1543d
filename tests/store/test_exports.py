"""Exports to the formats of other tools."""

import csv
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from testbed.errors import StoreError
from testbed.store.exports import Exporter, export_run, exporters
from testbed.store.exports import exporter as exporter_module
from testbed.store.reader import StoredRun, open_run
from testbed.store.writer import RunWriter

Finish = Callable[..., Path]


@pytest.fixture
def run(begin: Callable[..., RunWriter]) -> StoredRun:
    """A warm-up, a passed, a failed and a cut-off trial, with spans of tasks and devices."""
    writer = begin(
        trials=(
            {"warmup": True},
            {"measures": {"recovery": 0.5, "rate": 1e9}},
            {
                "status": "failed",
                "measures": {"recovery": None},
                "error": {"kind": "task", "message": 'no "spare" <is> & reachable \x00, µ'},
            },
            {"status": "unfinished"},
        ),
        points=({"policy": "lumion, warm"},),
    )
    for t, end, name in ((0.0, 0.4, "wire"), (0.1, 0.3, "wire"), (0.5, 0.6, "wire")):
        writer.append(
            {"t": t, "kind": "span", "name": name, "id": 1, "parent": None, "end": end,
             "status": "ok"}
        )  # fmt: skip
    writer.append(
        {"t": 0.3, "kind": "device", "device": "sw0", "operation": "apply", "elapsed_s": 0.2,
         "status": "ok", "error": None}
    )  # fmt: skip
    writer.append({"t": 0.3, "kind": "fault", "device": "host1", "fault": {"kind": "power-off"}})
    for text, passed in (("recovery.p95 < 1.2 s", True), ("rate.min > 1 Gb/s", False)):
        writer.append(
            {"t": 9.0, "kind": "expectation", "text": text, "passed": passed, "value": 0.5,
             "limit": 1.2, "point": None}
        )  # fmt: skip
    writer.finish({"status": "failed", "exit_code": 1, "error": None})
    return open_run(writer.folder)


def test_all_formats_are_found_by_their_entry_points() -> None:
    assert list(exporters()) == ["chrome", "csv", "json", "junit", "parquet"]
    for exporter in exporters().values():
        assert exporter.suffix.startswith(".")
        assert exporter.summary.endswith(".")


def test_csv_has_a_row_a_trial_that_names_its_backend(run: StoredRun, tmp_path: Path) -> None:
    path = export_run(run, "csv", tmp_path / "out.csv")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["passed", "passed", "failed", "unfinished"]
    assert {row["backend"] for row in rows} == {"mock"}
    assert {row["var.policy"] for row in rows} == {"lumion, warm"}
    assert rows[0]["warmup"] == "1"
    assert rows[1]["measure.recovery [s]"] == "0.5"
    assert float(rows[1]["measure.rate [b/s]"]) == 1e9
    assert rows[2]["measure.recovery [s]"] == ""
    assert "µ" in rows[2]["error"]


def test_parquet_is_the_table_of_trials(run: StoredRun, tmp_path: Path) -> None:
    path = export_run(run, "parquet", tmp_path / "out.parquet")
    table = pq.read_table(path)
    assert table.num_rows == 4
    assert table.column("measure.recovery").to_pylist() == [0.5, 0.5, None, None]


def test_json_holds_header_summary_and_trials(run: StoredRun, tmp_path: Path) -> None:
    document = json.loads(export_run(run, "json", tmp_path / "out.json").read_text("utf-8"))
    assert document["header"] == run.header
    assert document["summary"] == run.summary()
    assert document["trials"] == list(run.trials())


def test_junit_counts_what_it_shows(run: StoredRun, tmp_path: Path) -> None:
    root = ET.parse(export_run(run, "junit", tmp_path / "out.xml")).getroot()
    (suite,) = root
    cases = suite.findall("testcase")
    assert int(suite.attrib["tests"]) == len(cases) == 6
    assert int(suite.attrib["errors"]) == len(suite.findall("testcase/error")) == 2
    assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure")) == 1
    properties = {p.attrib["name"]: p.attrib["value"] for p in suite.findall("properties/property")}
    assert properties["backend"] == "mock"
    assert cases[0].attrib["name"] == "warm-up trial 0"
    assert cases[1].attrib["classname"] == "failover[policy=lumion, warm]"
    error = cases[2].find("error")
    assert error is not None
    assert '"spare" <is> & reachable \ufffd, µ' in error.attrib["message"]


def test_the_trace_has_a_lane_a_device_and_a_task(run: StoredRun, tmp_path: Path) -> None:
    document = json.loads(export_run(run, "chrome", tmp_path / "out.json").read_text("utf-8"))
    assert document["otherData"]["backend"] == "mock"
    events = document["traceEvents"]
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {"device sw0", "trials", "faults", "marks of controller", "wire"} <= set(lanes.values())
    (apply,) = (e for e in events if e["name"] == "apply")
    assert lanes[apply["tid"]] == "device sw0"
    assert (apply["ts"], apply["dur"]) == (100_000.0, 200_000.0)
    instants = [e for e in events if e["ph"] == "i"]
    assert {e["name"] for e in instants} >= {"fault.injected", "fault on host1: power-off"}


def test_intervals_of_one_lane_never_overlap(run: StoredRun, tmp_path: Path) -> None:
    document = json.loads(export_run(run, "chrome", tmp_path / "out.json").read_text("utf-8"))
    ends: dict[int, float] = {}
    intervals = [e for e in document["traceEvents"] if e["ph"] == "X"]
    assert len([e for e in intervals if e["name"] == "wire"]) == 3
    for event in sorted(intervals, key=lambda e: (e["tid"], e["ts"])):
        assert ends.get(event["tid"], 0.0) <= event["ts"]
        ends[event["tid"]] = event["ts"] + event["dur"]


@pytest.mark.parametrize("name", ["chrome", "csv", "json", "junit", "parquet"])
def test_a_run_without_trials_or_end_exports_too(
    begin: Callable[..., RunWriter], tmp_path: Path, name: str
) -> None:
    writer = begin(trials=())
    writer.close()
    assert export_run(open_run(writer.folder), name, tmp_path / "out").stat().st_size > 0


def test_an_existing_file_is_kept_unless_forced(run: StoredRun, tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    target.write_text("mine")
    with pytest.raises(StoreError, match="exists already"):
        export_run(run, "csv", target)
    assert target.read_text() == "mine"
    export_run(run, "csv", target, overwrite=True)
    assert target.read_text().startswith("run,backend")


def test_a_folder_gets_a_file_named_after_the_run(run: StoredRun, tmp_path: Path) -> None:
    assert export_run(run, "junit", tmp_path) == tmp_path / f"{run.id}.xml"


def test_an_export_that_fails_leaves_nothing(
    run: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(_: StoredRun, path: Path) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(
        exporter_module, "exporters", lambda: {"half": Exporter("half", ".h", "Half.", write)}
    )
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(StoreError, match="No space left"):
        export_run(run, "half", folder)
    assert list(folder.iterdir()) == []


def test_an_unknown_format_is_refused_with_those_there_are(run: StoredRun) -> None:
    with pytest.raises(StoreError, match="no export 'xls'") as caught:
        export_run(run, "xls")
    assert "parquet" in str(caught.value)
