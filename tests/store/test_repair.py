"""Closing runs whose controller died (TC75)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.errors import StoreError
from testbed.store.layout import TRIALS_FILE
from testbed.store.reader import open_run
from testbed.store.repair import repair
from testbed.store.writer import RunWriter

Begin = Callable[..., RunWriter]


@pytest.mark.parametrize("tail", [b"", b'{"t": 9.0, "ki', b"\0" * 9 + b"\n", b'{"t": 9.0}'])
def test_a_run_that_was_cut_off_is_closed(begin: Begin, tail: bytes) -> None:
    writer = begin()
    writer.close()
    before = list(open_run(writer.folder).events())
    with (writer.folder / "events.jsonl").open("ab") as log:
        log.write(tail)
    report = repair(open_run(writer.folder))
    run = open_run(writer.folder)
    assert report["status"] == run.status == "interrupted"
    assert ("dropped" in report["done"][0]) == bool(tail)
    events = list(run.events())
    assert events[:-1] == before
    assert events[-1]["t"] == before[-1]["t"]
    assert (writer.folder / TRIALS_FILE).is_file()
    assert len(list(run.trials())) == 3
    assert repair(run)["done"] == []


def test_a_run_that_goes_on_is_left_alone(begin: Begin) -> None:
    writer = begin()
    before = (writer.folder / "events.jsonl").read_bytes()
    with pytest.raises(StoreError, match="still goes on"):
        repair(open_run(writer.folder))
    assert (writer.folder / "events.jsonl").read_bytes() == before


def test_a_log_damaged_before_its_end_is_not_cut(begin: Begin) -> None:
    writer = begin()
    writer.close()
    log = writer.folder / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    lines[2] = b"rubbish\n"
    log.write_bytes(b"".join(lines))
    with pytest.raises(StoreError, match="damaged"):
        repair(open_run(writer.folder))
    assert log.read_bytes() == b"".join(lines)


def test_a_lost_table_is_made_again(finish: Callable[..., Path]) -> None:
    folder = finish()
    rows = list(open_run(folder).trials())
    (folder / TRIALS_FILE).unlink()
    assert repair(open_run(folder))["done"] == ["made the table of trials"]
    assert list(open_run(folder).trials()) == rows
