"""A run as a whole: preflight, trials, expectations, durability, exit codes, determinism."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from testbed.errors import (
    EXIT_DEVICE,
    EXIT_EXPECTATION,
    EXIT_INTERNAL,
    EXIT_LEASE,
    EXIT_OK,
    EXIT_USER,
    DeviceLost,
    LeaseError,
    StoreError,
    TaskFailed,
)
from testbed.hal.capabilities import Host, OpticalSwitch
from testbed.hal.types import Circuit, FaultSpec
from testbed.playbook.model import Expectation, MeasureSpec
from testbed.source.places import Place
from testbed.store.reader import open_run
from testbed.store.writer import RunWriter

Make = Callable[..., Any]
PLACE = Place("test.yaml", 1, 1)


async def nothing(context: Any, args: Any) -> None:
    """Passes."""


async def connect(context: Any, args: Any) -> None:
    await context.device("ocs", OpticalSwitch).apply({Circuit("1", "10")})


def value_measure(name: str = "v") -> dict[str, MeasureSpec]:
    return {name: MeasureSpec(name, PLACE, value="r.value")}


def expect(text: str, statistic: str, operator: str, limit: float) -> Expectation:
    return Expectation(text, PLACE, "v", statistic, operator, limit)


# --- preflight -------------------------------------------------------------------------------


def test_all_failures_of_the_preflight_are_told_together(
    engine: Any, make_task: Make, monkeypatch: Any
) -> None:
    """DESIGN 7.1. TC39: which devices failed and why, in parallel, and nothing was changed."""
    from testbed.engine import session as module

    real = module._gates

    def broken(*args: Any) -> Any:
        gates = real(*args)
        for name in ("host0", "pdu"):

            async def refuse(name: str = name) -> Any:
                await trio.sleep(3)
                raise DeviceLost(f"{name} cannot be reached", device=name)

            gates[name].device.open = refuse
        return gates

    monkeypatch.setattr(module, "_gates", broken)
    outcome = engine.execute(make_task(connect, devices=tuple(engine.rack.devices)))
    assert (outcome.status, outcome.exit_code) == ("error", EXIT_DEVICE)
    assert outcome.error.fields["devices"] == ["host0", "pdu"]
    assert "host0 cannot be reached" in outcome.error.message
    assert "pdu cannot be reached" in outcome.error.message
    assert engine.of("run.finished")[0]["t"] < 4  # in parallel
    assert not engine.of("trial.started")
    assert [e for e in engine.of("device") if e["operation"] != "open"] == []
    assert open_run(outcome.folder).status == "error"


def test_only_devices_that_the_plan_names_are_connected(engine: Any, make_task: Make) -> None:
    engine.execute(make_task(nothing, devices=("ocs",)))
    assert [e["device"] for e in engine.of("safe-state")] == ["ocs"]


def test_a_device_that_the_plan_could_not_name_is_connected_when_it_is_used(
    engine: Any, make_task: Make
) -> None:
    async def ask(context: Any, args: Any) -> None:
        await context.device("host2", Host).health()

    outcome = engine.execute(make_task(ask))
    assert outcome.status == "passed"
    assert [e["device"] for e in engine.of("safe-state")] == ["host2"]


def test_a_rack_in_use_refuses_and_says_who(engine: Any, make_task: Make) -> None:
    from testbed.engine.paths import rack_folder
    from testbed.rack.lease import acquire
    from testbed.timing.clock import run

    folder = rack_folder(engine.rack, engine.state_dir)

    async def take() -> Any:
        return await acquire(folder, rack="mock", run="somebody")

    lease = run(take)
    outcome = engine.execute(make_task(nothing), virtual=False)
    lease.release()
    assert outcome.exit_code == EXIT_LEASE and "somebody" in outcome.error.message
    assert outcome.folder is None


def test_a_run_that_loses_its_lease_stops_and_touches_nothing_more(
    engine: Any, make_task: Make
) -> None:
    """TC38."""
    from testbed.engine.paths import rack_folder
    from testbed.rack.lease import break_lease

    async def lose(context: Any, args: Any) -> None:
        break_lease(rack_folder(engine.rack, engine.state_dir))

    outcome = engine.execute(
        make_task(connect, devices=("ocs",)),
        make_task(lose),
        make_task(connect, args={}, loop=[1]),
        trials=3,
        virtual=False,
    )
    assert outcome.exit_code == EXIT_LEASE
    assert isinstance(outcome.error, LeaseError)
    assert len(engine.of("trial.started")) == 1
    assert list(outcome.dirty) == ["ocs"]


# --- trials ----------------------------------------------------------------------------------


def test_each_trial_is_durable_before_the_next_starts(
    engine: Any, make_task: Make, monkeypatch: Any
) -> None:
    """DESIGN 7.7. TC17."""
    order: list[str] = []
    real_append, real_sync = RunWriter.append, RunWriter.sync

    def append(self: RunWriter, event: dict[str, Any]) -> None:
        if event["kind"].startswith("trial."):
            order.append(event["kind"])
        real_append(self, event)

    def sync(self: RunWriter) -> None:
        order.append("sync")
        real_sync(self)

    monkeypatch.setattr(RunWriter, "append", append)
    monkeypatch.setattr(RunWriter, "sync", sync)
    engine.execute(make_task(nothing), trials=3)
    assert order[:9] == ["trial.started", "trial.finished", "sync"] * 3


def test_a_failed_trial_fails_the_run_and_stops_no_other(engine: Any, make_task: Make) -> None:
    """TC49, TC81: a failed trial never passes, whatever the others do."""

    async def body(context: Any, args: Any) -> Any:
        if context.trial == 1:
            raise TaskFailed("only this one")
        return {"value": 1.0}

    outcome = engine.execute(
        make_task(body, register="r"),
        trials=4,
        measures=value_measure(),
        expect=(expect("v.n == 3", "n", "==", 3),),
    )
    assert [e["status"] for e in engine.of("trial.finished")] == [
        "passed", "failed", "passed", "passed",
    ]  # fmt: skip
    assert engine.of("expectation")[0]["passed"]
    assert (outcome.status, outcome.exit_code) == ("failed", EXIT_DEVICE)
    assert outcome.error.message == "only this one"


def test_expectations_are_checked_per_point_without_warm_up(engine: Any, make_task: Make) -> None:
    async def body(context: Any, args: Any) -> Any:
        return {"value": 100.0 if context.trial % 3 == 0 else args.base}

    outcome = engine.execute(
        make_task(body, register="r", args={"base": "{{ base }}"}),
        sweep={"base": (1.0, 5.0)},
        warmup=1,
        trials=2,
        measures=value_measure(),
        expect=(expect("v.max < 4", "max", "<", 4), expect("v.n == 2", "n", "==", 2)),
    )
    assert [(e["point"], e["passed"], e["value"]) for e in engine.of("expectation")] == [
        (0, True, 1.0), (0, True, 2), (1, False, 5.0), (1, True, 2),
    ]  # fmt: skip
    assert (outcome.status, outcome.exit_code) == ("failed", EXIT_EXPECTATION)
    assert [e["vars"] for e in engine.of("point.started")] == [{"base": 1.0}, {"base": 5.0}]


def test_a_measure_that_could_not_be_taken_meets_no_expectation(
    engine: Any, make_task: Make
) -> None:
    async def body(context: Any, args: Any) -> Any:
        return {"value": 1.0} if context.trial else None

    outcome = engine.execute(
        make_task(body, register="r"),
        trials=2,
        measures=value_measure(),
        expect=(expect("v.max < 4", "max", "<", 4),),
    )
    (verdict,) = engine.of("expectation")
    assert (verdict["passed"], verdict["missing"]) == (False, 1)
    assert outcome.exit_code == EXIT_EXPECTATION


def test_what_runs_in_the_background_ends_with_the_trial(engine: Any, make_task: Make) -> None:
    """DESIGN 4: nothing outlives its scope."""
    alive: list[int] = []

    async def start(context: Any, args: Any) -> None:
        assert alive == []

        async def work() -> None:
            alive.append(context.trial)
            try:
                await trio.sleep_forever()
            finally:
                alive.remove(context.trial)

        context.start_soon(work, name="work")
        await trio.sleep(1)
        assert alive == [context.trial]

    assert engine.execute(make_task(start), trials=3).status == "passed"
    assert alive == []


def test_a_failure_in_the_background_fails_the_trial_at_once(engine: Any, make_task: Make) -> None:
    async def start(context: Any, args: Any) -> None:
        async def work() -> None:
            await trio.sleep(2)
            raise DeviceLost("the job has died", device="host0")

        context.start_soon(work, name="the job")
        await trio.sleep(100)

    outcome = engine.execute(make_task(start))
    assert outcome.error.message == "the job has died"
    assert outcome.error.fields["background"] == "the job"
    assert engine.of("task.finished")[0]["elapsed_s"] == 2


def test_one_seed_gives_one_event_log(engine: Any, make_task: Make) -> None:
    """DESIGN 4: the same bytes, apart from the run's id and the wall anchor."""

    async def body(context: Any, args: Any) -> Any:
        await connect(context, args)
        await trio.sleep(context.rng.random())
        return {"value": context.rng.random()}

    def log(seed: int) -> list[str]:
        outcome = engine.execute(make_task(body), trials=3, options={"seed": seed})
        text = (outcome.folder / "events.jsonl").read_text()
        return text.replace(outcome.run_id, "RUN").splitlines()

    assert log(1) == log(1)
    assert log(1) != log(2)


# --- exit codes ------------------------------------------------------------------------------


def test_a_defect_is_70_and_its_traceback_is_stored(engine: Any, make_task: Make) -> None:
    """DESIGN 7.9. TC07: one line for the user, the traceback for us."""

    async def broken(context: Any, args: Any) -> None:
        raise ZeroDivisionError("oops")

    outcome = engine.execute(make_task(connect), make_task(broken), trials=3)
    assert outcome.exit_code == EXIT_INTERNAL
    assert outcome.error.message == "ZeroDivisionError: oops"
    stored = (outcome.folder / outcome.error.fields["traceback"]).read_text()
    assert 'raise ZeroDivisionError("oops")' in stored
    assert len(engine.of("trial.started")) == 1
    assert outcome.dirty == {}  # cleaned up all the same


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, EXIT_OK),
        (TaskFailed("x"), EXIT_DEVICE),
        (DeviceLost("x", device="ocs"), EXIT_DEVICE),
        (LeaseError("x"), EXIT_LEASE),
        (RuntimeError("x"), EXIT_INTERNAL),
        (ExceptionGroup("g", [DeviceLost("x", device="ocs")]), EXIT_DEVICE),
        (ExceptionGroup("g", [DeviceLost("x", device="ocs"), KeyError()]), EXIT_INTERNAL),
    ],
)
def test_exit_codes(engine: Any, make_task: Make, error: Any, code: int) -> None:
    """DESIGN 7.9; 1, 130 and 131 have tests of their own."""

    async def body(context: Any, args: Any) -> None:
        if error:
            raise error

    outcome = engine.execute(make_task(body))
    assert outcome.exit_code == code
    assert open_run(outcome.folder).finished["exit_code"] == code


def test_an_unknown_tag_is_the_users_fault(engine: Any, make_task: Make) -> None:
    outcome = engine.execute(make_task(nothing), options={"tags": frozenset({"typo"})})
    assert outcome.exit_code == EXIT_USER and outcome.folder is None


def test_virtual_time_refuses_devices_that_are_no_twins(engine: Any, make_task: Make) -> None:
    import dataclasses

    from testbed.hal.types import Backend

    devices = dict(engine.rack.devices)
    devices["ocs"] = dataclasses.replace(devices["ocs"], backend=Backend.REAL)
    engine.rack = dataclasses.replace(engine.rack, devices=devices)
    outcome = engine.execute(make_task(nothing))
    assert outcome.exit_code == EXIT_DEVICE
    assert "virtual time is for twins only, and ocs" in outcome.error.message


# --- the store -------------------------------------------------------------------------------


def test_a_disk_that_fills_stops_the_run_and_not_its_cleanup(
    engine: Any, make_task: Make, monkeypatch: Any
) -> None:
    """Devices end in their safe state although nothing can be written any more."""
    real = RunWriter.append
    full = False

    def append(self: RunWriter, event: dict[str, Any]) -> None:
        if full:
            raise StoreError("the disk is full")
        real(self, event)

    async def fill(context: Any, args: Any) -> None:
        nonlocal full
        full = True
        context.mark("any")
        await trio.sleep(1000)

    monkeypatch.setattr(RunWriter, "append", append)
    outcome = engine.execute(make_task(connect, devices=("ocs",)), make_task(fill), trials=3)
    assert (outcome.status, outcome.exit_code) == ("error", EXIT_USER)
    assert outcome.error.message == "the disk is full"
    assert len(engine.of("trial.started")) == 1
    assert [e["safe"] for e in engine.of("safe-state")] == [True]


def test_no_folder_for_results_is_told_before_anything_is_touched(
    engine: Any, make_task: Make
) -> None:
    (engine.folder / "results").write_text("a file")
    outcome = engine.execute(make_task(connect))
    assert outcome.exit_code == EXIT_USER and engine.events == []


def test_an_observer_that_breaks_is_dropped_and_told(engine: Any, make_task: Make) -> None:
    def broken(event: dict[str, Any]) -> None:
        raise ValueError("no terminal")

    outcome = engine.execute(make_task(nothing), options={"observers": (broken,)})
    assert outcome.status == "passed"
    logs = [e["message"] for e in engine.of("log")]
    assert logs == ["an observer broke: ValueError('no terminal')"]


def test_what_is_told_to_observers_is_what_is_stored(engine: Any, make_task: Make) -> None:
    outcome = engine.execute(make_task(connect), trials=2)
    assert json.loads(json.dumps(engine.events)) == engine.stored(outcome)


def test_memory_does_not_grow_with_trials(engine: Any, make_task: Make) -> None:
    """Only values of measures are kept: 8 bytes each."""
    import gc
    import tracemalloc

    sizes: dict[int, int] = {}

    async def body(context: Any, args: Any) -> Any:
        if context.trial in (500, 1500):  # the heap of deadlines has its size by then
            gc.collect()
            sizes[context.trial] = tracemalloc.get_traced_memory()[0]
        return {"value": 1.0}

    tracemalloc.start()
    try:
        engine._observe = lambda event: None
        engine.execute(make_task(body, register="r"), trials=1501, measures=value_measure())
    finally:
        tracemalloc.stop()
    # A few numbers a trial stay, for the expectations; an event or a result would be far more.
    assert sizes[1500] - sizes[500] < 64 * 1000


def test_a_hanging_device_costs_its_deadline_and_no_more(engine: Any, make_task: Make) -> None:
    """DESIGN 7.8. TC19, TC25."""
    import dataclasses

    engine.rack = dataclasses.replace(engine.rack, deadlines_s={"circuits": 2.0, "apply": 3.0})

    async def hang(context: Any, args: Any) -> None:
        twin = context._trial.session.gates["ocs"].device
        await twin.inject(FaultSpec("silent", operation="*", count=None))  # as a real one would
        await connect(context, args)

    outcome = engine.execute(make_task(hang, devices=("ocs",)))
    assert list(outcome.dirty) == ["ocs"]
    finished = engine.of("run.finished")[0]["t"]
    # Reading what was there, then once more for the safe state, then saying good-bye.
    assert finished - engine.of("task.started")[0]["t"] <= 2.0 + 2.0 + 5.0 + 0.01


def test_state_dir_can_be_chosen(monkeypatch: Any, tmp_path: Path) -> None:
    from testbed.engine.paths import state_dir

    monkeypatch.setenv("TESTBED_STATE_DIR", str(tmp_path))
    assert state_dir() == tmp_path
    monkeypatch.delenv("TESTBED_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "x"))
    if os.name == "posix" and os.uname().sysname == "Linux":
        assert state_dir() == tmp_path / "x" / "testbed"
