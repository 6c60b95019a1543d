"""The index of runs: a cache that any process can use at any time."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.errors import StoreError
from testbed.store import index as index_module
from testbed.store.index import RunIndex
from testbed.store.layout import INDEX_FILE
from testbed.store.reader import open_run
from testbed.store.writer import RunWriter

Begin = Callable[..., RunWriter]
Finish = Callable[..., Path]

ADD_RUNS = """
import sys
from pathlib import Path
from testbed.store.index import RunIndex
from testbed.store.reader import open_run
from testbed.store.writer import RunWriter

results, prefix = Path(sys.argv[1]), sys.argv[2]
for number in range(15):
    writer = RunWriter.create(results, {"run": f"{prefix}{number:02}", "backend": "mock"})
    writer.finish({"status": "passed", "exit_code": 0, "error": None})
    assert any(row["run"] == writer.folder.name for row in RunIndex(results).list())
"""

KILLED_IN_A_TRANSACTION = """
import os, signal, sys, sqlite3
from pathlib import Path
from testbed.store.writer import RunWriter

results = Path(sys.argv[1])
writer = RunWriter.create(results, {"run": "killed"})
writer.append({"t": 0.0, "kind": "trial.started", "trial": 0})
connection = sqlite3.connect(results / "index.sqlite", isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("DELETE FROM runs")
os.kill(os.getpid(), signal.SIGKILL)
"""


def names(results: Path, **filters: str) -> list[str]:
    return [row["run"] for row in RunIndex(results).list(**filters)]  # type: ignore[arg-type]


def test_runs_are_listed_the_newest_first(finish: Finish, results_dir: Path) -> None:
    for name in ("20261201-1", "20261203-1", "20261202-1"):
        finish(name)
    assert names(results_dir) == ["20261203-1", "20261202-1", "20261201-1"]
    assert [row["run"] for row in RunIndex(results_dir).list(1)] == ["20261203-1"]


def test_a_row_says_what_a_list_shows(finish: Finish, results_dir: Path) -> None:
    finish(trials=({"warmup": True}, {"measures": {"recovery": 0.25}}, {"status": "failed"}))
    (row,) = RunIndex(results_dir).list()
    expected = {
        "playbook": "failover",
        "rack": "bench",
        "backend": "mock",
        "virtual": True,
        "status": "passed",
        "trials": 2,
        "failed": 1,
        "measure": "recovery",
        "unit": "s",
        "median": 0.25,
    }
    assert {key: row[key] for key in expected} == expected


def test_runs_are_found_by_playbook_and_status(
    finish: Finish, begin: Begin, results_dir: Path
) -> None:
    finish("a", status="failed")
    finish("b", playbook={"name": "soak"})
    assert names(results_dir, status="failed") == ["a"]
    assert names(results_dir, playbook="soak") == ["b"]


def test_a_run_that_goes_on_is_followed(begin: Begin, results_dir: Path) -> None:
    writer = begin("one")
    assert RunIndex(results_dir).list()[0]["status"] == "running"
    writer.close()  # as if its process had died
    assert RunIndex(results_dir).list()[0]["status"] == "unfinished"


def test_folders_that_come_and_go_are_followed(finish: Finish, results_dir: Path) -> None:
    folder = finish("one")
    assert names(results_dir) == ["one"]
    shutil.copytree(folder, results_dir / "copy")
    (results_dir / "copy" / "run.json").write_text('{"run": "copy"}')
    shutil.rmtree(folder)
    (results_dir / "plots").mkdir()  # no run
    assert names(results_dir) == ["copy"]


def test_a_run_whose_header_is_lost_is_listed_as_unreadable(
    finish: Finish, begin: Begin, results_dir: Path
) -> None:
    finish("good")
    writer = begin("bad")
    writer.close()
    (writer.folder / "run.json").unlink()
    rows = {row["run"]: row["status"] for row in RunIndex(results_dir).list()}
    assert rows == {"good": "passed", "bad": "unreadable"}


@pytest.mark.parametrize("content", [b"", b"no database at all" * 100])
def test_a_damaged_index_is_made_again_with_a_notice(
    finish: Finish, results_dir: Path, content: bytes
) -> None:
    finish("one")
    for suffix in ("-wal", "-shm"):
        (results_dir / (INDEX_FILE + suffix)).unlink(missing_ok=True)
    (results_dir / INDEX_FILE).write_bytes(content)
    notices: list[str] = []
    rows = RunIndex(results_dir, notice=notices.append).list()
    assert [row["run"] for row in rows] == ["one"]
    # An empty file is a database without tables: nothing was lost, and nothing need be said.
    assert len(notices) == (1 if content else 0)
    assert names(results_dir) == ["one"]


def test_a_damaged_page_is_noticed_too(finish: Finish, results_dir: Path) -> None:
    for number in range(40):
        finish(f"run{number:02}", trials=())
    index = results_dir / INDEX_FILE
    with sqlite3.connect(index) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    content = bytearray(index.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    index.write_bytes(content)
    notices: list[str] = []
    assert len(RunIndex(results_dir, notice=notices.append).list()) == 40
    assert len(notices) == 1


def test_an_index_of_another_version_is_made_again(
    finish: Finish, results_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish("one")
    monkeypatch.setattr(index_module, "_VERSION", 2)
    notices: list[str] = []
    assert RunIndex(results_dir, notice=notices.append).list()[0]["run"] == "one"
    assert "version" in notices[0]


def test_rebuild_gives_the_rows_that_were_there(finish: Finish, results_dir: Path) -> None:
    for name in ("a", "b", "c"):
        finish(name)
    before = RunIndex(results_dir).list()
    (results_dir / INDEX_FILE).unlink()
    assert RunIndex(results_dir).rebuild() == 3
    assert RunIndex(results_dir).list() == before


def test_without_a_folder_there_are_no_runs(tmp_path: Path) -> None:
    assert RunIndex(tmp_path / "none").list() == []
    with pytest.raises(StoreError, match="there are no runs"):
        RunIndex(tmp_path / "none").find("latest")
    assert not (tmp_path / "none").exists()


def test_a_run_is_found_by_any_unique_beginning(finish: Finish, results_dir: Path) -> None:
    first = finish("20261201-120000-aaaa00-failover")
    second = finish("20261201-120500-bbbb00-soak")
    index = RunIndex(results_dir)
    assert index.find("latest").id == second.name
    assert index.find("20261201-1200").id == first.name
    assert index.find("aaaa").id == first.name
    assert index.find("soak").id == second.name
    assert index.find(first.name).id == first.name
    assert index.find(str(first)).id == first.name


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("20261201", "fits 2 runs"),
        ("nothing", "no run 'nothing'"),
        ("", "no run"),
        ("..", "no run"),
    ],
)
def test_what_fits_no_run_or_several_is_refused(
    finish: Finish, results_dir: Path, reference: str, message: str
) -> None:
    finish("20261201-120000-aaaa00-failover")
    finish("20261201-120500-bbbb00-soak")
    with pytest.raises(StoreError, match=message):
        RunIndex(results_dir).find(reference)


def test_two_processes_write_and_read_at_the_same_time(results_dir: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", ADD_RUNS, str(results_dir), prefix])
        for prefix in ("a", "b")
    ]
    assert [process.wait() for process in processes] == [0, 0]
    assert len(names(results_dir)) == 30


def test_a_writer_killed_in_a_transaction_leaves_no_lock(finish: Finish, results_dir: Path) -> None:
    """TC73: another process reads and writes at once."""
    finish("one")
    RunIndex(results_dir).list()
    subprocess.run([sys.executable, "-c", KILLED_IN_A_TRANSACTION, str(results_dir)], check=False)
    assert names(results_dir) == ["one", "killed"]  # newest first is by name
    RunIndex(results_dir).add(open_run(finish("two")))
    assert names(results_dir, status="unfinished") == ["killed"]


def test_a_folder_that_cannot_be_written_is_said_by_name(finish: Finish, results_dir: Path) -> None:
    finish("one")
    (results_dir / INDEX_FILE).unlink()
    (results_dir / INDEX_FILE).mkdir()
    with pytest.raises(StoreError, match=INDEX_FILE):
        RunIndex(results_dir).list()
