"""Writing a run: nothing that was appended is ever lost."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import EXIT_USER, StoreError
from testbed.store import writer as writer_module
from testbed.store.reader import open_run
from testbed.store.runid import new_run_id
from testbed.store.writer import RunWriter

WRITE_FOR_EVER = """
import itertools, sys
from pathlib import Path
from testbed.store.writer import RunWriter

writer = RunWriter.create(Path(sys.argv[1]), {"run": "killed"})
for number in itertools.count():
    writer.append({"t": float(number), "kind": "log", "message": "x" * (number % 200)})
    print(number, flush=True)
"""


def test_every_event_is_readable_as_soon_as_it_is_appended(begin: Callable[..., RunWriter]) -> None:
    writer = begin(trials=())
    writer.append({"t": 1.0, "kind": "log", "message": "µ → \u2028 end"})
    events = list(open_run(writer.folder).events())
    assert events[-1] == {"t": 1.0, "kind": "log", "message": "µ → \u2028 end"}


def test_a_killed_writer_loses_no_event_that_it_had_appended(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE_FOR_EVER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for _ in range(500):
        appended = int(process.stdout.readline())
    process.kill()
    rest = process.stdout.read().split("\n")
    appended = max([appended, *(int(line) for line in rest[:-1])])
    process.stdout.close()
    process.wait()
    numbers = [event["t"] for event in open_run(tmp_path / "killed").events()]
    assert numbers == [float(n) for n in range(len(numbers))]
    assert len(numbers) >= appended + 1


def test_a_log_cut_at_any_byte_gives_all_whole_lines(begin: Callable[..., RunWriter]) -> None:
    writer = begin(trials=({}, {"measures": {"recovery": float("inf")}, "error": "µ"}))
    writer.close()
    log = writer.folder / "events.jsonl"
    content = log.read_bytes()
    whole = list(open_run(writer.folder).events())
    for size in range(len(content) + 1):
        log.write_bytes(content[:size])
        assert list(open_run(writer.folder).events()) == whole[: content[:size].count(b"\n")]
        assert len(list(open_run(writer.folder).trials())) <= 2


class FullDisk:
    """Takes ``room`` bytes more, then has none left, as a real disk: the last write is short."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.write: Callable[[int, bytes], int] = os.write

    def __call__(self, file: int, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = self.write(file, data[: self.room])
        self.room -= taken
        return taken


@pytest.mark.parametrize("room", [0, 1, 20])
def test_a_full_disk_is_said_clearly_and_loses_nothing(
    begin: Callable[..., RunWriter], monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    writer = begin()
    before = (writer.folder / "events.jsonl").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(writer_module.os, "write", FullDisk(room))
        with pytest.raises(StoreError, match="the disk is full") as caught:
            writer.append({"t": 9.0, "kind": "log", "message": "does not fit in here"})
    assert caught.value.exit_code == EXIT_USER
    assert "make room" in str(caught.value)
    assert (writer.folder / "events.jsonl").read_bytes() == before
    writer.append({"t": 9.5, "kind": "log", "message": "after room was made"})
    assert list(open_run(writer.folder).events())[-1]["t"] == 9.5


def test_after_a_torn_line_that_cannot_be_taken_back_no_line_follows(
    begin: Callable[..., RunWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = begin()
    whole = list(open_run(writer.folder).events())

    def broken(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(writer_module.os, "write", FullDisk(5))
        patch.setattr(writer_module.os, "ftruncate", broken)
        with pytest.raises(StoreError):
            writer.append({"t": 9.0, "kind": "log"})
    with pytest.raises(StoreError, match="closed"):
        writer.append({"t": 9.5, "kind": "log"})
    assert list(open_run(writer.folder).events()) == whole


def test_an_existing_run_is_never_written_over(begin: Callable[..., RunWriter]) -> None:
    begin("one")
    with pytest.raises(StoreError, match="exists"):
        begin("one")


def test_a_place_that_cannot_be_written_is_said_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StoreError, match="file"):
        RunWriter.create(tmp_path / "file", {"run": "one"})


def test_finish_leaves_a_whole_run(begin: Callable[..., RunWriter]) -> None:
    writer = begin()
    writer.finish({"status": "failed", "exit_code": 1, "error": {"kind": "expectation"}})
    last = json.loads((writer.folder / "events.jsonl").read_bytes().splitlines()[-1])
    assert last == {
        "t": 2.75,  # of the last event: the outcome gave none
        "kind": "run.finished",
        "status": "failed",
        "exit_code": 1,
        "error": {"kind": "expectation"},
    }
    assert sorted(path.name for path in writer.folder.iterdir()) == [
        "events.jsonl",
        "run.json",
        "trials.parquet",
    ]
    with pytest.raises(StoreError, match="closed"):
        writer.append({"t": 9.0, "kind": "log"})


def test_a_run_ends_well_even_when_the_index_cannot_be_written(
    begin: Callable[..., RunWriter], caplog: pytest.LogCaptureFixture
) -> None:
    writer = begin()
    (writer.folder.parent / "index.sqlite").mkdir()
    writer.finish({"status": "passed", "exit_code": 0, "error": None})
    assert open_run(writer.folder).status == "passed"
    assert "index.sqlite" in caplog.text


def test_artefacts_stay_in_the_run(begin: Callable[..., RunWriter]) -> None:
    writer = begin()
    assert writer.artefact("host1/train.log", "step 1 µ\n") == "artefacts/host1/train.log"
    assert (writer.folder / "artefacts/host1/train.log").read_text("utf-8") == "step 1 µ\n"
    for name in ("../run.json", "/etc/motd", "a/../../b", ""):
        with pytest.raises(StoreError):
            writer.artefact(name, "x")


def test_names_of_runs_sort_by_time_and_differ() -> None:
    names = [new_run_id("LUMION failover!") for _ in range(200)]
    assert len(set(names)) == len(names)
    moments = [name[:20] for name in names]  # date, time and microsecond
    assert moments == sorted(moments)
    assert all(name.endswith("-lumion-failover") for name in names)
    assert new_run_id("…").count("-") == 2
