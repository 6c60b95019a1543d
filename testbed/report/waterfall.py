"""The recovery waterfall: where the time from a fault to the first good step went.

Always phase by phase, each from a mark to a mark, and with the instant at which the clock starts:
a recovery time alone can mean anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from testbed.report.recovery import PhaseFigures, Recovery, collect_recovery
from testbed.report.results import find_point, find_trial
from testbed.report.terminal import line, origin_label, plural, words
from testbed.store.reader import StoredRun
from testbed.store.summary import PASSED
from testbed.store.trials import TrialRow
from testbed.timing.quantity import format_value
from testbed.timing.statistics import MIN_FOR_INTERVAL, OUTLIER_RULE, Summary

_WIDEST_BAR = 60
_NARROWEST_BAR = 16
_PHASE_STYLES = ("red", "magenta", "blue", "cyan", "green", "yellow")
# Left out first where the terminal is narrow: the range, then the 95th percentile.
_COLUMNS_TO_SPARE = ("min – max", "p95")


def render_waterfall(
    run: StoredRun, console: Console, *, trial: int | None = None, point: int | None = None
) -> None:
    """Draw the waterfall of a run.

    Trials that passed and are no warm-up are put together. With a sweep, each point has its own:
    trials of different points are never mixed.

    :param trial: draw this trial alone, whatever became of it.
    :param point: draw this sweep point alone.
    :raises StoreError: when there is no such trial or point.
    """
    by_point: dict[int, list[TrialRow]] = {}
    for row in run.trials():
        if (trial is None or row["trial"] == trial) and (point is None or row["point"] == point):
            by_point.setdefault(row["point"], []).append(row)
    if not by_point:
        if trial is not None:
            find_trial(run, trial)
        if point is not None:
            find_point(run, point)
        line(console, f"{run.id} has no trials to draw.")
        return
    drawn: Recovery | None = None
    for _, rows in sorted(by_point.items()):
        console.print()
        if trial is None:
            counted = [row for row in rows if not row["warmup"] and row["status"] == PASSED]
            _print_title(run, console, rows[0], _counts(rows))
        else:
            counted = rows
            warmup = ", a warm-up" if rows[0]["warmup"] else ""
            _print_title(run, console, rows[0], f"trial {trial}: {rows[0]['status']}{warmup}")
        recovery = collect_recovery(run, counted)
        if recovery.total.n == 0:
            line(console, "No trial here saw a fault injected: there is no recovery to show.")
            continue
        drawn = recovery
        _draw(recovery, console)
    if drawn is not None:
        _explain(drawn, console)


def _counts(rows: Sequence[TrialRow]) -> str:
    warmup = sum(row["warmup"] for row in rows)
    not_passed = sum(not row["warmup"] and row["status"] != PASSED for row in rows)
    left_out = [f"{warmup} warm-up"] if warmup else []
    if not_passed:
        left_out.append(f"{not_passed} that did not pass")
    counted = plural(len(rows) - warmup - not_passed, "trial")
    return counted + (f" (left out: {', '.join(left_out)})" if left_out else "")


def _print_title(run: StoredRun, console: Console, row: TrialRow, counts: str) -> None:
    variables = ", ".join(f"{name}={value}" for name, value in row["vars"].items())
    title = f"Recovery waterfall of {run.playbook}" + (f", {variables}" if variables else "")
    line(console, title, style="bold")
    line(console, f"{run.id} · {origin_label(run.backend, run.virtual)} · {counts}")


def _draw(recovery: Recovery, console: Console) -> None:
    first, last = recovery.phases[0], recovery.phases[-1]
    line(console, f"The clock starts at {first.begin_mark} and stops at {last.end_mark}.")
    console.print()
    _print_bars(recovery, console)
    console.print()
    for phase in recovery.phases:
        if phase.own.missing:
            share = f"{phase.own.missing} of {plural(recovery.trials, 'trial')}"
            line(console, f"{phase.name}: {phase.end_mark} was not reached in {share}.")
        if phase.instant:
            share = f"{phase.instant} of {plural(recovery.trials, 'trial')}"
            line(
                console,
                f"{phase.name}: no time of its own in {share}; "
                "it was over when the phases above it were.",
            )
    for sentence in _about_total(recovery):
        line(console, sentence)


def _explain(recovery: Recovery, console: Console) -> None:
    console.print()
    line(console, "What each phase includes:", style="dim")
    for phase in recovery.phases:
        marks = f"{phase.begin_mark} → {phase.end_mark}"
        line(console, f"{phase.name}: {marks}, {phase.includes}", style="dim", indent=2)


def _about_total(recovery: Recovery) -> list[str]:
    total = recovery.total
    if recovery.trials == 1:
        return []
    sentences = ["Each column has its own median, so that the medians need not add up."]
    if total.ci_low is None:
        sentences.append(
            f"Fewer than {MIN_FOR_INTERVAL} trials: no 95 % interval of the median can be given."
        )
    else:
        low, high = format_value(total.ci_low, "s"), format_value(total.ci_high, "s")
        sentences.append(f"95 % interval of the median total: {low} to {high}.")
    if recovery.outliers:
        numbers = ", ".join(map(str, recovery.outliers))
        sentences.append(f"Outliers, counted in ({OUTLIER_RULE}): trial {numbers}.")
    return sentences


def _print_bars(recovery: Recovery, console: Console) -> None:
    several = recovery.trials > 1
    figures = [_columns(phase.own, phase.until_s, several) for phase in recovery.phases]
    figures.append(_columns(recovery.total, None, several) | {"until": ""})
    # In the terminal's signs before widths are taken: an ASCII sign may be longer.
    rows = [{c: words(console, text) for c, text in row.items()} for row in figures]
    names = [phase.name for phase in recovery.phases] + ["total"]
    columns = list(rows[0])
    name_width = max(map(len, names))
    widths = {c: max(len(c), *(len(row[c]) for row in rows)) for c in columns}

    def room() -> int:
        return console.width - name_width - 2 - sum(widths[c] + 2 for c in columns)

    for spare in _COLUMNS_TO_SPARE:
        if room() < _NARROWEST_BAR and spare in columns:
            columns.remove(spare)
    width = max(1, min(_WIDEST_BAR, room()))
    scale_s = max([phase.until_s or 0.0 for phase in recovery.phases] + [0.0]) or 1.0

    head = "".join(f"  {words(console, column):>{widths[column]}}" for column in columns)
    head = f"{'phase':<{name_width}}  {'':<{width}}{head}"
    console.print(Text(head, style="bold"), highlight=False, soft_wrap=True)
    for number, (name, row) in enumerate(zip(names, rows, strict=True)):
        text = Text(f"{name:<{name_width}}  ")
        if number < len(recovery.phases):
            style = _PHASE_STYLES[number % len(_PHASE_STYLES)]
            bar = _bar(recovery.phases[number], scale_s, width)
            text.append(words(console, bar), style=style)
        else:
            text.stylize("bold")
            text.append(" " * width)
        for column in columns:
            text.append(f"  {row[column]:>{widths[column]}}")
        text.rstrip()
        console.print(text, highlight=False, soft_wrap=True)


def _columns(own: Summary, until_s: float | None, several: bool) -> dict[str, str]:
    if not several:
        return {"time": format_value(own.median, "s"), "until": format_value(until_s, "s")}
    spread = "—" if own.n == 0 else f"{format_value(own.min, 's')} – {format_value(own.max, 's')}"
    return {
        "median": format_value(own.median, "s"),
        "p95": format_value(own.p95, "s"),
        "min – max": spread,
        "until": format_value(until_s, "s"),
    }


def _bar(phase: PhaseFigures, scale_s: float, width: int) -> str:
    """The phase's median, at the median of its start; a thin sign where it took no time."""
    if phase.own.median is None:
        return " " * width
    start = min(width - 1, round(phase.start_s / scale_s * width))
    length = round(phase.own.median / scale_s * width)
    drawn = "█" * min(length, width - start) or "▏"
    return (" " * start + drawn).ljust(width)
