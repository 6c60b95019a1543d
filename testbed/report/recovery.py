"""The recoveries of some trials, phase by phase, as figures; drawn by ``waterfall``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from testbed.store.header import phase_descriptions
from testbed.store.reader import StoredRun
from testbed.store.trials import TrialRow
from testbed.timing.statistics import Summary, summarise


@dataclass(frozen=True)
class PhaseFigures:
    """One phase over some trials; times in seconds.

    :param begin_mark: mark at which it starts, or the end of an earlier phase if that is later.
    :param end_mark: mark at which it ends.
    :param includes: what is in it, in words.
    :param own: statistics of the time that it took of its own; ``missing`` counts the trials
        that did not reach its end.
    :param start_s: median of its start, counted from the start of the clock.
    :param until_s: median of its end, counted likewise; a trial that did not reach it counts
        with the end of the phase before. ``None`` when no trial reached it.
    :param instant: number of trials in which it took no time of its own, having ended before
        an earlier phase did.
    """

    name: str
    begin_mark: str
    end_mark: str
    includes: str
    own: Summary
    start_s: float
    until_s: float | None
    instant: int


@dataclass(frozen=True)
class Recovery:
    """The phases of some trials.

    :param trials: how many trials went in.
    :param total: from the start of the clock to the end of the last phase reached, in seconds.
    :param outliers: numbers of the trials whose total is an outlier; they are counted in.
    """

    phases: tuple[PhaseFigures, ...]
    trials: int
    total: Summary
    outliers: tuple[int, ...]


@dataclass
class _Collected:
    own: list[float | None] = field(default_factory=list)
    start: list[float] = field(default_factory=list)
    until: list[float] = field(default_factory=list)


def collect_recovery(run: StoredRun, rows: Iterable[TrialRow]) -> Recovery:
    """Put the phases of trials together, in the order in which the run's header has them."""
    collected: dict[str, _Collected] = {}
    totals: list[float | None] = []
    trials: list[int] = []
    for row in rows:
        at_s = 0.0
        for name, value in row["phases"].items():
            phase = collected.setdefault(name, _Collected())
            phase.own.append(value)
            phase.start.append(at_s)
            at_s += value or 0.0
            phase.until.append(at_s)
        reached = any(value is not None for value in row["phases"].values())
        totals.append(at_s if reached else None)
        trials.append(row["trial"])
    total = summarise(totals)
    return Recovery(
        phases=tuple(
            _figures(description, collected[description["name"]])
            for description in run.header.get("phases") or phase_descriptions()
            if description["name"] in collected
        ),
        trials=len(trials),
        total=total,
        outliers=tuple(trials[place] for place in total.outliers),
    )


def _figures(description: Mapping[str, str], collected: _Collected) -> PhaseFigures:
    own = summarise(collected.own)
    return PhaseFigures(
        name=description["name"],
        begin_mark=description["from"],
        end_mark=description["to"],
        includes=description["includes"],
        own=own,
        start_s=summarise(collected.start).median or 0.0,
        until_s=summarise(collected.until).median if own.n else None,
        instant=sum(value == 0.0 for value in collected.own),
    )
