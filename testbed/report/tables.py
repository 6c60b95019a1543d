"""Tables for the terminal: runs, the summary of one, and the points of a sweep.

Every table says which backend its values come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from testbed.report.terminal import line, origin_label, plural, status_text, table
from testbed.timing.quantity import format_value
from testbed.timing.statistics import MIN_FOR_INTERVAL, OUTLIER_RULE

Record = Mapping[str, Any]


def render_runs(rows: Sequence[Record], console: Console) -> None:
    """The rows of :meth:`testbed.store.index.RunIndex.list`, one line a run."""
    if not rows:
        line(console, "There are no runs.")
        return
    table(
        console,
        "",
        [
            ("run", "left"),
            ("status", "left"),
            ("backend", "left"),
            ("trials", "left"),
            ("median", "left"),
        ],
        [
            (
                str(row["run"]),
                status_text(row["status"]),
                (row["backend"] or "—") + (", virtual" if row["virtual"] else ""),
                _trials(row),
                f"{row['measure']} {format_value(row['median'], row['unit'])}"
                if row["measure"]
                else "—",
            )
            for row in rows
        ],
        spare=("median", "trials"),
    )


def render_summary(summary: Record, console: Console) -> None:
    """Outcome of a run: its verdict, measures, expectations and what is left to do."""
    console.print()
    head = Text.assemble(f"{summary['run']} ", status_text(summary["status"]))
    console.print(head, highlight=False, soft_wrap=True)
    counts = [plural(summary["trials"], "trial"), f"{summary['failed']} failed"]
    if summary["warmup"]:
        counts.append(f"{summary['warmup']} warm-up, not counted")
    if summary["unfinished"]:
        counts.append(f"{summary['unfinished']} cut off")
    line(
        console,
        f"{summary['playbook']} on {summary['rack']} · {_origin(summary)} · "
        f"seed {summary['seed']} · {', '.join(counts)}",
    )
    if summary["error"]:
        line(console, f"error: {_message(summary['error'])}", style="red")
    if len(summary["points"]) > 1:
        render_sweep(summary, console)  # figures of different points are not put together
    elif summary["measures"]:
        render_statistics(summary["measures"], console, title=f"Measures ({_origin(summary)})")
    console.print()
    render_expectations(summary, console)
    for device in summary["dirty"]:
        line(console, f"not safe: {device}; see `testbed recover`", style="red")


def render_statistics(
    statistics: Mapping[str, Record], console: Console, *, title: str = ""
) -> None:
    """Every statistic of measures or phases."""
    table(
        console,
        title,
        [
            ("", "left"),
            ("n", "right"),
            ("min", "right"),
            ("median", "right"),
            ("95 % interval", "right"),
            ("mean", "right"),
            ("p95", "right"),
            ("p99", "right"),
            ("max", "right"),
            ("sd", "right"),
        ],
        [
            (
                name,
                str(record["n"]),
                *(_value(record, statistic) for statistic in ("min", "median")),
                _interval(record),
                *(_value(record, s) for s in ("mean", "p95", "p99", "max", "sd")),
            )
            for name, record in statistics.items()
        ],
        spare=("p99", "mean", "sd", "min"),
    )
    for sentence in _remarks(statistics):
        line(console, sentence)


def render_sweep(summary: Record, console: Console, *, measure: str | None = None) -> None:
    """One table a measure, one line a sweep point: variables, trials, median, p95, interval.

    :param measure: this measure alone.
    """
    points = summary["points"]
    variables = _swept(points)
    names = [measure] if measure is not None else list(summary["measures"])
    for name in names:
        table(
            console,
            f"{name} ({_origin(summary)})",
            [
                *((variable, "left") for variable in variables),
                ("n", "right"),
                ("failed", "right"),
                ("median", "right"),
                ("p95", "right"),
                ("95 % interval", "right"),
                ("min – max", "right"),
            ],
            [_sweep_row(point, variables, name) for point in points],
            spare=("min – max",),
        )
    missing = [
        f"{name} could not be taken in {plural(record['missing'], 'trial')} of point "
        + ", ".join(f"{key}={point['vars'].get(key)}" for key in variables)
        for point in points
        for name, record in point["measures"].items()
        if name in names and record["missing"]
    ]
    for sentence in missing:
        line(console, f"{sentence}.")
    if any(0 < r["n"] < MIN_FOR_INTERVAL for p in points for r in p["measures"].values()):
        line(console, _NO_INTERVAL)


def _sweep_row(point: Record, variables: Sequence[str], measure: str) -> list[str]:
    record = point["measures"].get(measure)
    cells = [str(point["vars"].get(variable, "—")) for variable in variables]
    if record is None:  # no trial of this point passed
        return [*cells, "0", str(point["failed"]), "—", "—", "—", "—"]
    spread = "—"
    if record["n"]:
        spread = f"{_value(record, 'min')} – {_value(record, 'max')}"
    return [
        *cells,
        str(record["n"]),
        str(point["failed"]),
        _value(record, "median"),
        _value(record, "p95"),
        _interval(record),
        spread,
    ]


def _swept(points: Sequence[Record]) -> list[str]:
    """Names of the variables that differ between points, in the order of the playbook."""
    names = dict.fromkeys(name for point in points for name in point["vars"])
    return [n for n in names if len({repr(point["vars"].get(n)) for point in points}) > 1]


def render_expectations(summary: Record, console: Console) -> None:
    """What was expected, whether it was met, and the value that decided it.

    In a sweep, the points that met it share a line; each that did not has its own.
    """
    units = {name: record["unit"] for name, record in summary["measures"].items()}
    points = summary["points"]
    variables = {point["point"]: point["vars"] for point in points}
    swept = _swept(points)
    by_text: dict[str, list[Record]] = {}
    for expectation in summary["expectations"]:
        by_text.setdefault(str(expectation["text"]), []).append(expectation)
    for text, verdicts in by_text.items():
        unit = units.get(text.split(".", 1)[0], "")
        met = sorted(verdict["value"] for verdict in verdicts if verdict["passed"])
        failed = [verdict for verdict in verdicts if not verdict["passed"]]
        if met:
            span = " to ".join(format_value(v, unit) for v in dict.fromkeys((met[0], met[-1])))
            of = f"all {len(met)}" if not failed else f"{len(met)} of {len(verdicts)}"
            where = f" at {of} points" if len(verdicts) > 1 else ""
            line(console, f"✓ {text}{where}: {span}", style="green")
        for verdict in failed:
            point = variables.get(verdict.get("point"), {})
            where = ", ".join(f"{name}={point.get(name)}" for name in swept)
            line(
                console,
                f"✗ {text}" + (f" [{where}]" if where else "")
                + f": {format_value(verdict['value'], unit)}",
                style="red",
            )  # fmt: skip


_NO_INTERVAL = f"Below {MIN_FOR_INTERVAL} trials no 95 % interval of the median can be given."


def _remarks(statistics: Mapping[str, Record]) -> list[str]:
    remarks = []
    for name, record in statistics.items():
        if record["missing"]:
            remarks.append(f"{name} could not be taken in {plural(record['missing'], 'trial')}.")
        if record["outliers"]:
            shown = record["outliers"][:10]
            more = len(record["outliers"]) - len(shown)
            numbers = ", ".join(map(str, shown)) + (f" and {more} more" if more else "")
            remarks.append(f"{name}: outliers, counted in ({OUTLIER_RULE}): trial {numbers}.")
    if any(0 < record["n"] < MIN_FOR_INTERVAL for record in statistics.values()):
        remarks.append(_NO_INTERVAL)
    return remarks


def _value(record: Record, statistic: str) -> str:
    return format_value(record[statistic], record["unit"])


def _interval(record: Record) -> str:
    if record["ci_low"] is None:
        return "—"
    return f"{_value(record, 'ci_low')} – {_value(record, 'ci_high')}"


def _origin(summary: Record) -> str:
    return origin_label(summary["backend"], summary["virtual"])


def _trials(row: Record) -> str:
    if row["trials"] is None:
        return "—"
    return str(row["trials"]) + (f", {row['failed']} failed" if row["failed"] else "")


def _message(error: Any) -> str:
    """What went wrong, where in the playbook, and what can be done about it."""
    if not isinstance(error, Mapping):
        return str(error)
    message = str(error.get("message", error))
    place = error.get("place")
    if place and str(place) not in message:
        message += f" (task {error.get('task', '')} at {place})"
    remedy = error.get("remedy")
    return f"{message}; remedy: {remedy}" if remedy else message
