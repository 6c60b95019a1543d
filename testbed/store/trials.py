"""Rows of trials, from the event log, and their table in Parquet.

The table is derived: it can be made again from the log at any time. It is written and read in
groups of rows, so that its size does not reach the memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from testbed.store.events import (
    POINT_STARTED,
    TRIAL_FINISHED,
    TRIAL_STARTED,
    Event,
)
from testbed.store.layout import TRIALS_FILE, replaced_whole

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from testbed.store.reader import StoredRun

TABLE_VERSION = "1"
ROWS_A_GROUP = 4096
UNFINISHED = "unfinished"
Kind = Literal["measures", "phases"]
_PREFIXES: dict[Kind, str] = {"measures": "measure.", "phases": "phase."}


class TrialRow(TypedDict):
    """One trial.

    ``t`` is its start and ``elapsed_s`` its duration, in seconds of the run; the duration of a
    trial that was cut off (``status`` ``unfinished``) is ``None``. ``measures`` are in the units
    that ``run.json`` gives, ``phases`` in seconds; ``None`` is a value that could not be taken.
    """

    trial: int
    point: int
    warmup: bool
    status: str
    t: float
    elapsed_s: float | None
    vars: dict[str, Any]
    measures: dict[str, float | None]
    phases: dict[str, float | None]
    error: Any


def rows_of_events(events: Iterable[Event]) -> Iterator[TrialRow]:
    """One row a trial, in the order in which trials ended; one that was cut off comes last."""
    points: dict[int, dict[str, Any]] = {}
    started: dict[int, Event] = {}
    for event in events:
        kind = event["kind"]
        if kind == POINT_STARTED:
            points[event["point"]] = event.get("vars") or {}
        elif kind == TRIAL_STARTED:
            started[event["trial"]] = event
        elif kind == TRIAL_FINISHED:
            start = started.pop(event["trial"], event)
            yield _row(start, event, points)
    for start in started.values():
        yield _row(start, None, points)


def _row(start: Event, end: Event | None, points: Mapping[int, dict[str, Any]]) -> TrialRow:
    last = start if end is None else end
    point = last.get("point", 0)
    return TrialRow(
        trial=last["trial"],
        point=point,
        warmup=bool(last.get("warmup", False)),
        status=UNFINISHED if end is None else end["status"],
        t=start["t"],
        elapsed_s=None if end is None else end["t"] - start["t"],
        vars=points.get(point, {}),
        measures=as_numbers(last.get("measures")),
        phases=as_numbers(last.get("phases")),
        error=last.get("error"),
    )


def as_numbers(values: Mapping[str, Any] | None) -> dict[str, float | None]:
    """Values as numbers; what is no number could not be taken, and says so by ``None``."""
    return {
        name: float(value) if isinstance(value, int | float) else None
        for name, value in (values or {}).items()
    }


def write_trials(run: StoredRun) -> Path:
    """Make ``trials.parquet`` of a run from its event log, in place of the one there is."""
    target = run.folder / TRIALS_FILE
    with replaced_whole(target) as draft:
        write_table(run, draft)
    return target


def write_table(run: StoredRun, path: Path) -> None:
    """Write the rows of a run's event log as Parquet to ``path``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = _Columns.of(run.trials_from_events())
    schema = columns.schema(run)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for rows in _batched(run.trials_from_events(), ROWS_A_GROUP):
            writer.write_batch(
                pa.RecordBatch.from_pydict(columns.values(rows), schema=schema),
                row_group_size=ROWS_A_GROUP,
            )


def read_trials(path: Path) -> Iterator[TrialRow]:
    """The rows of a table that :func:`write_table` wrote, read as they are asked for.

    :raises ValueError: at once, when the file is damaged or no such table.
    """
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    metadata = table.schema_arrow.metadata or {}
    if metadata.get(b"testbed.table") != TABLE_VERSION.encode():
        table.close()
        raise ValueError(f"{path} is no table of trials of this version")
    return _rows_of_table(table, _Columns(**json.loads(metadata[b"testbed.columns"])))


def _rows_of_table(table: pq.ParquetFile, columns: _Columns) -> Iterator[TrialRow]:
    with table:
        for batch in table.iter_batches(batch_size=ROWS_A_GROUP):
            yield from columns.rows(batch.to_pydict())


class _Columns:
    """Which measures, phases and variables the rows of a run have, in order of appearance."""

    def __init__(
        self,
        measures: Iterable[str] = (),
        phases: Iterable[str] = (),
        points: Mapping[str, dict[str, Any]] | None = None,
    ) -> None:
        self.names: dict[Kind, list[str]] = {"measures": list(measures), "phases": list(phases)}
        self.points = {int(point): variables for point, variables in (points or {}).items()}

    @classmethod
    def of(cls, rows: Iterable[TrialRow]) -> _Columns:
        measures: dict[str, None] = {}
        phases: dict[str, None] = {}
        points: dict[str, dict[str, Any]] = {}
        for row in rows:
            measures.update(dict.fromkeys(row["measures"]))
            phases.update(dict.fromkeys(row["phases"]))
            points[str(row["point"])] = row["vars"]
        return cls(measures, phases, points)

    @property
    def variables(self) -> list[str]:
        return list(dict.fromkeys(name for point in self.points.values() for name in point))

    def schema(self, run: StoredRun) -> pa.Schema:
        """Columns with their units, and what the table is about, in its metadata."""
        import pyarrow as pa

        seconds = {"unit": "s"}
        fields = [
            pa.field("trial", pa.int64(), nullable=False),
            pa.field("point", pa.int64(), nullable=False),
            pa.field("warmup", pa.bool_(), nullable=False),
            pa.field("status", pa.string(), nullable=False),
            pa.field("t", pa.float64(), metadata=seconds),
            pa.field("elapsed_s", pa.float64(), metadata=seconds),
            *(pa.field(f"var.{name}", pa.string()) for name in self.variables),
            *(
                pa.field(_PREFIXES[kind] + name, pa.float64(), metadata={"unit": unit})
                for kind, names in self.names.items()
                for name, unit in ((n, run.unit(n) if kind == "measures" else "s") for n in names)
            ),
            pa.field("error", pa.string()),
            # Whether the trial had the value at all: null alone would not say.
            pa.field("absent", pa.list_(pa.string())),
        ]
        about = {"measures": self.names["measures"], "phases": self.names["phases"]}
        return pa.schema(
            fields,
            metadata={
                "testbed.table": TABLE_VERSION,
                "testbed.run": run.id,
                "testbed.playbook": run.playbook,
                "testbed.rack": run.rack,
                "testbed.backend": run.backend,
                "testbed.virtual": json.dumps(run.virtual),
                "testbed.columns": json.dumps({**about, "points": self.points}),
            },
        )

    def values(self, rows: list[TrialRow]) -> dict[str, list[Any]]:
        """Rows turned into columns."""
        columns: dict[str, list[Any]] = {
            name: [row[name] for row in rows]
            for name in ("trial", "point", "warmup", "status", "t", "elapsed_s")
        }
        for name in self.variables:
            columns[f"var.{name}"] = [_text(row["vars"].get(name)) for row in rows]
        for kind, names in self.names.items():
            for name in names:
                columns[_PREFIXES[kind] + name] = [row[kind].get(name) for row in rows]
        columns["error"] = [
            None if row["error"] is None else json.dumps(row["error"], default=str) for row in rows
        ]
        columns["absent"] = [self._absent(row) for row in rows]
        return columns

    def _absent(self, row: TrialRow) -> list[str]:
        return [
            _PREFIXES[kind] + name
            for kind, names in self.names.items()
            for name in names
            if name not in row[kind]
        ]

    def rows(self, columns: Mapping[str, list[Any]]) -> Iterator[TrialRow]:
        """Columns turned into rows again."""
        for place, trial in enumerate(columns["trial"]):
            absent = set(columns["absent"][place])
            measures, phases = (
                {
                    name: columns[prefix + name][place]
                    for name in self.names[kind]
                    if prefix + name not in absent
                }
                for kind, prefix in _PREFIXES.items()
            )
            error = columns["error"][place]
            point = columns["point"][place]
            yield TrialRow(
                trial=trial,
                point=point,
                warmup=columns["warmup"][place],
                status=columns["status"][place],
                t=columns["t"][place],
                elapsed_s=columns["elapsed_s"][place],
                vars=self.points.get(point, {}),
                measures=measures,
                phases=phases,
                error=None if error is None else json.loads(error),
            )


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _batched(rows: Iterable[TrialRow], size: int) -> Iterator[list[TrialRow]]:
    batch: list[TrialRow] = []
    for row in rows:
        batch.append(row)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
