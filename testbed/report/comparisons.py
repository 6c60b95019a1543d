"""Comparisons in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console

from testbed.report.compare import Comparison, MeasureComparison
from testbed.report.rules import RuleResult
from testbed.report.terminal import line, table
from testbed.timing.quantity import format_value


def render_comparison(comparison: Comparison, console: Console) -> None:
    """Both runs side by side, what they do not share, and what can be claimed."""
    console.print()
    line(console, f"base  {comparison.base} ({comparison.base_backend})")
    line(console, f"new   {comparison.new} ({comparison.new_backend})")
    for difference in comparison.differences:
        line(console, f"not like with like: {difference}", style="yellow")
    if not comparison.measures:
        line(console, "The runs have no measure in common.")
        return
    table(
        console,
        "",
        [
            ("", "left"),
            ("n", "right"),
            ("base median", "right"),
            ("new median", "right"),
            ("ratio", "right"),
            ("95 % interval", "right"),
            ("p", "right"),
        ],
        [_row(measure) for measure in comparison.measures],
        spare=("n",),
    )
    console.print()
    for measure in comparison.measures:
        if measure.kind == "measures":
            line(console, _where(measure.point) + measure.claim)
    line(console, "Ratios are of medians; p is of each line alone (Mann-Whitney).", style="dim")


def render_rules(results: Iterable[RuleResult], console: Console) -> None:
    """What became of the rules."""
    for result in results:
        line(
            console,
            f"{'✗' if result.failed else '✓'} {_where(result.point)}fail if {result.rule}: "
            + result.detail,
            style="red" if result.failed else "green",
        )


def _row(measure: MeasureComparison) -> list[str]:
    interval = "—"
    if measure.ratio_low is not None and measure.ratio_high is not None:
        interval = f"{measure.ratio_low:.3g}× – {measure.ratio_high:.3g}×"
    name = measure.name if measure.kind == "measures" else f"phase {measure.name}"
    return [
        _where(measure.point) + name,
        f"{measure.base.n}, {measure.new.n}",
        format_value(measure.base.median, measure.unit),
        format_value(measure.new.median, measure.unit),
        "—" if measure.ratio is None else f"{measure.ratio:.3g}×",
        interval,
        "—" if measure.p_value is None else f"{measure.p_value:.2g}",
    ]


def _where(point: Mapping[str, Any]) -> str:
    return f"[{', '.join(f'{k}={v}' for k, v in point.items())}] " if point else ""
