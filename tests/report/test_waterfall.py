"""The recovery waterfall says where the time went, and what it does not know (TC82)."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from testbed.errors import StoreError
from testbed.report.recovery import collect_recovery
from testbed.report.waterfall import render_waterfall
from testbed.store.reader import StoredRun
from testbed.timing.phases import phase_names

MakeRun = Callable[..., StoredRun]


def test_every_phase_has_its_marks_in_order(make_run: MakeRun) -> None:
    run = make_run()
    recovery = collect_recovery(run, run.trials())
    assert tuple(phase.name for phase in recovery.phases) == tuple(phase_names())
    for earlier, later in zip(recovery.phases, recovery.phases[1:], strict=False):
        assert earlier.end_mark == later.begin_mark


def test_phases_of_one_trial_add_up_to_its_recovery(make_run: MakeRun) -> None:
    run = make_run()
    for row in run.trials():
        recovery = collect_recovery(run, [row])
        assert recovery.total.median == pytest.approx(row["measures"]["recovery"])
        assert recovery.phases[-1].until_s == recovery.total.median


def test_starts_and_ends_never_go_back(make_run: MakeRun) -> None:
    run = make_run(trials=30)
    ends = [phase.until_s for phase in collect_recovery(run, run.trials()).phases]
    assert ends == sorted(ends, key=float)


def test_a_phase_that_no_trial_reached_is_shown_as_unknown(
    make_run: MakeRun, terminal: Callable[..., Any]
) -> None:
    def phases(rng: random.Random, turn: int) -> dict[str, float | None]:
        return {"detect": 0.1, "decide": None, "program": None}

    screen = terminal()
    render_waterfall(make_run(phases=phases, trials=4), screen.console)
    (decide,) = (line for line in screen.text().split("\n") if line.startswith("decide  "))
    assert "—" in decide
    assert "0 s" not in decide
    assert "decide: failover.decided was not reached in 3 of 3 trials." in screen.text()


def test_a_phase_that_took_no_time_of_its_own_is_shown_as_zero(
    make_run: MakeRun, terminal: Callable[..., Any]
) -> None:
    screen = terminal()
    render_waterfall(make_run(), screen.console)
    (regroup,) = (line for line in screen.text().split("\n") if line.startswith("regroup  "))
    assert "0 s" in regroup
    assert "regroup: no time of its own in 8 of 8 trials" in screen.text()


def test_it_says_where_the_clock_starts_and_what_was_left_out(
    make_run: MakeRun, terminal: Callable[..., Any]
) -> None:
    screen = terminal(140)
    render_waterfall(make_run(), screen.console)
    text = screen.text()
    assert "The clock starts at fault.injected and stops at job.first-good-step." in text
    assert "8 trials (left out: 1 warm-up, 1 that did not pass)" in text


def test_a_run_without_faults_has_nothing_to_show(
    make_run: MakeRun, terminal: Callable[..., Any]
) -> None:
    screen = terminal()
    render_waterfall(make_run(phases=lambda rng, turn: {}), screen.console)
    assert "no recovery to show" in screen.text()


@pytest.mark.parametrize(("choice", "message"), [({"trial": 99}, "trial 99"), ({"point": 9}, "9")])
def test_a_trial_or_point_that_is_not_there_is_refused(
    make_run: MakeRun, terminal: Callable[..., Any], choice: dict[str, int], message: str
) -> None:
    with pytest.raises(StoreError, match=message):
        render_waterfall(make_run(), terminal().console, **choice)


def test_points_of_a_sweep_are_never_put_together(
    make_run: MakeRun, terminal: Callable[..., Any]
) -> None:
    run = make_run(points=[{"policy": "lumion"}, {"policy": "restart"}], trials=4)
    screen = terminal()
    render_waterfall(run, screen.console)
    assert "policy=lumion" in screen.text()
    assert "policy=restart" in screen.text()
    only = terminal()
    render_waterfall(run, only.console, point=1)
    assert "policy=lumion" not in only.text()


def test_texts_of_users_are_no_markup(make_run: MakeRun, terminal: Callable[..., Any]) -> None:
    screen = terminal()
    run = make_run(points=[{"spare": "[red]host3[/red]"}], trials=2)
    render_waterfall(run, screen.console)
    assert "spare=[red]host3[/red]" in screen.text()
