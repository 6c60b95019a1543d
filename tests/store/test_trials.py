"""The table of trials: the same rows as the event log, with units and origin."""

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.store import trials as trials_module
from testbed.store.reader import open_run
from testbed.store.trials import TRIALS_FILE, read_trials, rows_of_events, write_trials
from testbed.store.writer import RunWriter

NAMES = st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
NUMBERS = st.none() | st.floats(allow_nan=False) | st.integers(-(2**53), 2**53)
NAMED = st.dictionaries(NAMES, NUMBERS, max_size=3)
TRIALS = st.lists(
    st.fixed_dictionaries(
        {
            "point": st.integers(0, 2),
            "warmup": st.booleans(),
            "status": st.sampled_from(["passed", "failed", "interrupted"]),
            "measures": NAMED,
            "phases": NAMED,
            "error": st.none() | st.fixed_dictionaries({"kind": NAMES, "message": NAMES}),
        }
    ),
    max_size=12,
)
VARIABLES = st.dictionaries(NAMES, st.none() | st.text(max_size=5) | st.integers(), max_size=3)


@settings(max_examples=40, deadline=None)
@given(TRIALS, st.lists(VARIABLES, min_size=3, max_size=3))
def test_the_table_holds_the_rows_of_the_log(
    trials: list[dict[str, Any]], points: list[dict[str, Any]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writer = RunWriter.create(Path(folder), {"run": "one"})
        for number, variables in enumerate(points):
            writer.append({"t": 0.0, "kind": "point.started", "point": number, "vars": variables})
        for number, trial in enumerate(trials):
            frame = {"trial": number, "point": trial["point"], "warmup": trial["warmup"]}
            writer.append({"t": float(number), "kind": "trial.started", **frame})
            writer.append({"t": number + 0.5, "kind": "trial.finished", "trial": number, **trial})
        writer.finish({"status": "passed", "exit_code": 0, "error": None})
        run = open_run(writer.folder)
        rows = list(run.trials_from_events())
        assert list(run.trials()) == rows
        assert len(rows) == len(trials)
        (writer.folder / TRIALS_FILE).unlink()
        write_trials(run)
        assert list(read_trials(writer.folder / TRIALS_FILE)) == rows


def test_rows_in_many_groups_keep_their_order(
    finish: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials_module, "ROWS_A_GROUP", 4)
    folder = finish(trials=[{"measures": {"recovery": float(n)}} for n in range(11)])
    run = open_run(folder)
    assert pq.ParquetFile(folder / TRIALS_FILE).num_row_groups == 3
    assert list(run.trials()) == list(run.trials_from_events())


def test_the_table_says_units_and_origin(finish: Callable[..., Path]) -> None:
    folder = finish(trials=[{"measures": {"recovery": 1.0, "rate": 2.0}}])
    schema = pq.read_schema(folder / TRIALS_FILE)
    assert schema.metadata[b"testbed.backend"] == b"mock"
    assert schema.metadata[b"testbed.run"] == folder.name.encode()
    assert schema.field("measure.recovery").metadata[b"unit"] == b"s"
    assert schema.field("measure.rate").metadata[b"unit"] == b"b/s"
    assert schema.field("phase.detect").metadata[b"unit"] == b"s"


def test_not_a_number_reaches_the_table(finish: Callable[..., Path]) -> None:
    folder = finish(trials=[{"measures": {"recovery": math.nan}}])
    (row,) = open_run(folder).trials()
    assert row["measures"]["recovery"] is not None
    assert math.isnan(row["measures"]["recovery"])


def test_a_value_that_is_no_number_could_not_be_taken() -> None:
    events = [
        {"t": 0.0, "kind": "trial.started", "trial": 0},
        {
            "t": 1.0,
            "kind": "trial.finished",
            "trial": 0,
            "status": "passed",
            "measures": {"recovery": "fast"},
        },
    ]
    (row,) = rows_of_events(events)
    assert row["measures"] == {"recovery": None}
    assert row["elapsed_s"] == 1.0


def test_another_table_is_no_table_of_trials(tmp_path: Path) -> None:
    import pyarrow as pa

    pq.write_table(pa.table({"trial": [1]}), tmp_path / TRIALS_FILE)
    with pytest.raises(ValueError, match="no table of trials"):
        list(read_trials(tmp_path / TRIALS_FILE))


def test_a_damaged_table_is_passed_over_for_the_log(finish: Callable[..., Path]) -> None:
    folder = finish()
    rows = list(open_run(folder).trials())
    for content in (b"", b"PAR1 rubbish PAR1"):
        (folder / TRIALS_FILE).write_bytes(content)
        assert list(open_run(folder).trials()) == rows
