"""The journal: what was changed is on disk before it is, and readable wherever it ends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import RackError
from testbed.rack.journal import FOLDER, DeviceChanges, FileJournal, dirty_runs, read_journal


def journal(folder: Path, run: str = "r1") -> FileJournal:
    return FileJournal(folder, run, run, "rack")


def left_behind(folder: Path) -> FileJournal:
    """A journal whose writer died: its lock is gone and its file is not."""
    made = journal(folder)
    made.intend("ocs", "apply", {"circuits": ["1>9"]})
    made.intend("pdu", "switch", {"outlets": {"1": "on"}})
    made.intend("ocs", "apply", {})
    made.close()
    return made


def test_an_intent_is_on_disk_before_it_returns(tmp_path: Path) -> None:
    made = journal(tmp_path)
    made.intend("ocs", "apply", {"circuits": ["1>9"]})
    path = next((tmp_path / FOLDER).iterdir())
    found = read_journal(path, path.read_bytes())
    assert found is not None
    assert found.changes == {"ocs": DeviceChanges(["apply"], {"circuits": ["1>9"]})}
    made.close()


def test_a_journal_that_ends_well_is_gone(tmp_path: Path) -> None:
    made = journal(tmp_path)
    made.intend("ocs", "apply", {})
    made.settle("ocs")
    made.close()
    assert dirty_runs(tmp_path) == []
    assert not list((tmp_path / FOLDER).iterdir())


def test_a_journal_that_is_left_names_what_was_before(tmp_path: Path) -> None:
    left_behind(tmp_path)
    (run,) = dirty_runs(tmp_path)
    assert run.run == "r1" and run.devices == ("ocs", "pdu")
    assert run.changes["pdu"].before == {"outlets": {"1": "on"}}
    run.forget()
    assert dirty_runs(tmp_path) == []


def test_a_run_that_still_goes_on_is_not_dirty(tmp_path: Path) -> None:
    made = journal(tmp_path)
    made.intend("ocs", "apply", {})
    assert dirty_runs(tmp_path, tidy=True) == []
    made.close()
    assert len(dirty_runs(tmp_path)) == 1


def test_killed_at_any_byte_it_is_readable(tmp_path: Path) -> None:
    """DESIGN 7.6: kill -9 anywhere leaves a journal with every intent that was complete."""
    left_behind(tmp_path)
    path = next((tmp_path / FOLDER).iterdir())
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        run = read_journal(path, whole[:cut])
        # A line whose newline alone is missing is complete as well.
        lines = sum(end - 1 <= cut for end in ends)
        if lines == 0:
            assert run is None
        else:
            assert run is not None
            assert run.devices == ("ocs", "pdu")[: lines - 1]


def test_what_was_before_the_first_change_counts(tmp_path: Path) -> None:
    made = journal(tmp_path)
    made.intend("pdu", "switch", {"outlets": {"1": "on"}})
    made.intend("pdu", "switch", {"outlets": {"1": "off", "2": "off"}})
    assert made.changes["pdu"].before == {"outlets": {"1": "on", "2": "off"}}
    made.close()


def test_a_disk_that_is_full_refuses_the_change(tmp_path: Path, monkeypatch: Any) -> None:
    made = journal(tmp_path)
    real = os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda handle, data: real(handle, data[:10]))
        with pytest.raises(RackError, match="nothing was sent"):
            made.intend("ocs", "apply", {})
    made.intend("pdu", "switch", {})  # room was made; the torn line swallows nothing
    made.close()
    (run,) = dirty_runs(tmp_path)
    assert run.devices == ("pdu",)


PARTS = st.dictionaries(
    st.sampled_from(["circuits", "outlets"]),
    st.one_of(
        st.lists(st.text(max_size=5), max_size=3),
        st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    ),
    max_size=2,
)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["apply", "switch"]), PARTS)))
def test_what_is_read_is_what_was_meant(tmp_path_factory: Any, intents: Any) -> None:
    folder = tmp_path_factory.mktemp("j")
    made = journal(folder)
    kinds: dict[tuple[str, str], type] = {}
    for device, operation, before in intents:
        kept = {
            p: v for p, v in before.items() if kinds.setdefault((device, p), type(v)) is type(v)
        }
        made.intend(device, operation, kept)
    expected = dict(made.changes)
    made.close()
    runs = dirty_runs(folder)
    assert (runs[0].changes if runs else {}) == expected
