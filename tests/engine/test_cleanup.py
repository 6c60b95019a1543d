"""Cleanup: always, all of it, each step in its own time, and the rack safe afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from testbed.engine.recover import dirty
from testbed.errors import EXIT_DEVICE, EXIT_OK, TaskFailed
from testbed.hal.capabilities import FaultInjectable, Host, OpticalSwitch, PowerController
from testbed.hal.power import switch_verified
from testbed.hal.types import Circuit, FaultSpec, OutletState

Make = Callable[..., Any]
LINK = Circuit("1", "10")


async def connect(context: Any, args: Any) -> None:
    await context.device("ocs", OpticalSwitch).apply({LINK})


async def spawn(context: Any, args: Any) -> None:
    await context.device("host0", Host).spawn(["sleep", "1000"], tag=context.run_id)


async def power_down(context: Any, args: Any) -> None:
    pdu = context.device("pdu", PowerController)
    await switch_verified(pdu, ["1", "5"], OutletState.OFF)  # 5 is not in the safe state


async def fail(context: Any, args: Any) -> None:
    raise TaskFailed("as planned")


async def hang(context: Any, args: Any) -> None:
    await trio.sleep_forever()


async def nothing(context: Any, args: Any) -> None:
    """Passes."""


def adding(*steps: tuple[str, Any], deadline_s: float = 10.0) -> Any:
    async def add(context: Any, args: Any) -> None:
        for name, step in steps:
            context.add_cleanup(name, step, deadline_s=deadline_s)

    return add


def test_cleanup_runs_last_added_first_after_always(engine: Any, make_task: Make) -> None:
    ran: list[str] = []

    def step(name: str) -> Any:
        async def run(*_: Any) -> None:
            ran.append(name)

        return run

    async def take_back(context: Any, args: Any) -> None:
        context.add_cleanup("gone", step("gone"))()

    engine.execute(
        make_task(adding(("one", step("one")), ("two", step("two")))),
        make_task(take_back),
        make_task(fail),
        always=(make_task(step("always")),),
    )
    assert ran == ["always", "two", "one"]
    assert [e["status"] for e in engine.of("cleanup")] == ["ok"] * 3


def test_a_cleanup_step_that_fails_or_hangs_does_not_stop_the_next(
    engine: Any, make_task: Make
) -> None:
    """DESIGN 7.4. TC02, TC04: each has its own deadline; all errors are gathered."""
    ran: list[float] = []

    async def breaks() -> None:
        raise ZeroDivisionError("a defect in a cleanup")

    async def hangs() -> None:
        await trio.sleep_forever()

    async def works() -> None:
        ran.append(trio.current_time())

    outcome = engine.execute(
        make_task(adding(("last", works), ("broken", breaks), ("hung", hangs), deadline_s=4)),
        make_task(fail),
        always=(make_task(fail), make_task(hang, deadline_s=3)),
    )
    assert len(ran) == 1
    assert [e["status"] for e in engine.of("cleanup")] == [
        "failed", "timeout", "timeout", "failed", "ok",
    ]  # fmt: skip
    assert outcome.error.message == "as planned"
    assert len(outcome.error.fields["cleanup"]) == 4
    elapsed = {e["name"]: e["elapsed_s"] for e in engine.of("cleanup")}
    assert elapsed["hung"] == 4 and elapsed["hang"] == 3  # no more than the deadline


def test_a_trial_whose_cleanup_fails_has_failed(engine: Any, make_task: Make) -> None:
    outcome = engine.execute(make_task(nothing), always=(make_task(fail),))
    assert (outcome.status, outcome.exit_code) == ("failed", EXIT_DEVICE)
    assert engine.of("trial.finished")[0]["status"] == "failed"


def test_cleanup_has_its_time_after_the_trial_has_used_up_its_own(
    engine: Any, make_task: Make
) -> None:
    """TC03."""
    ran: list[float] = []

    async def slow_cleanup(context: Any, args: Any) -> None:
        await trio.sleep(50)
        ran.append(1)

    outcome = engine.execute(make_task(hang), deadline_s=5, always=(make_task(slow_cleanup),))
    assert ran == [1]
    assert "trial 0 was not done within 5.00 s" in outcome.error.message


@pytest.mark.parametrize("ending", [nothing, fail, hang])
def test_devices_end_in_the_safe_state_whatever_the_playbook_forgot(
    engine: Any, make_task: Make, ending: Any
) -> None:
    """DESIGN 7.4. TC12, TC11: light off, power on, nothing of ours left running; what the safe
    state does not speak of is as it was before."""
    states: list[Any] = []

    async def look(context: Any, args: Any) -> None:
        states.append(
            (
                await context.device("ocs", OpticalSwitch).circuits(),
                dict(await context.device("pdu", PowerController).outlets()),
                await context.device("host0", Host).processes(context.run_id),
            )
        )

    outcome = engine.execute(
        make_task(look),
        make_task(connect),
        make_task(spawn),
        make_task(power_down),
        make_task(ending, deadline_s=5),
        trials=2,
    )
    assert states[1] == states[0]  # the second trial started from the state of the first
    circuits, outlets, processes = states[1]
    assert (circuits, list(processes)) == (frozenset(), [])
    assert set(outlets.values()) == {OutletState.ON}
    assert outcome.dirty == {}
    safe = {e["device"]: e["safe"] for e in engine.of("safe-state")}
    assert safe["ocs"] and safe["pdu"] and safe["host0"]


def test_a_device_that_cannot_be_made_safe_is_named(engine: Any, make_task: Make) -> None:
    """DESIGN 7.4, 7.5; a run that leaves a device behind never passes."""
    engine.rack = type(engine.rack)(**{**vars(engine.rack), "deadlines_s": {"clear_faults": 2.0}})

    async def stick(context: Any, args: Any) -> None:
        await context.device("ocs", OpticalSwitch).apply({LINK})
        twin = context._trial.session.gates["ocs"].device
        await twin.inject(FaultSpec("refuse", operation="apply", count=None))  # not by a guard

    outcome = engine.execute(make_task(stick, devices=("ocs",)), trials=1)
    assert list(outcome.dirty) == ["ocs"]
    assert (outcome.status, outcome.exit_code) == ("error", EXIT_DEVICE)
    assert "testbed recover" in str(outcome.error.remedy)
    assert [e["device"] for e in engine.of("safe-state") if not e["safe"]] == ["ocs", "ocs"]


def test_no_trial_starts_from_a_state_that_was_not_reached(engine: Any, make_task: Make) -> None:
    """DESIGN 7.3. TC78: the cause is named, and later trials do not fail confusingly."""

    async def stick(context: Any, args: Any) -> None:
        await context.device("ocs", OpticalSwitch).apply({LINK})
        twin = context._trial.session.gates["ocs"].device
        await twin.inject(FaultSpec("refuse", operation="apply", count=None))

    outcome = engine.execute(make_task(stick, devices=("ocs",)), trials=5)
    assert len(engine.of("trial.started")) == 1
    assert outcome.status == "error"
    assert "the state from which a trial starts cannot be reached: ocs" in outcome.error.message


def test_faults_that_a_playbook_forgot_are_cleared(engine: Any, make_task: Make) -> None:
    async def silence(context: Any, args: Any) -> None:
        await context.device("ocs", FaultInjectable).inject(
            FaultSpec("silent", operation="*", count=None)
        )

    outcome = engine.execute(make_task(silence), trials=2)
    assert (outcome.status, outcome.dirty) == ("passed", {})


def test_a_host_that_lost_power_is_waited_for_before_the_next_trial(
    engine: Any, make_task: Make
) -> None:
    """DESIGN 7.3: every trial starts with all its hosts answering."""

    async def unplug(context: Any, args: Any) -> None:
        await context.device("host1", Host).health()
        await switch_verified(context.device("pdu", PowerController), ["2"], OutletState.OFF)

    outcome = engine.execute(make_task(unplug), trials=2)
    assert (outcome.status, outcome.dirty) == ("passed", {})
    first, second = engine.of("trial.finished")
    assert second["t"] - first["t"] > 1.0  # a boot


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    ("ending", "status"), [(nothing, "passed"), (fail, "failed"), (hang, "failed"),
                           ("interrupt", "interrupted")]
)  # fmt: skip
def test_keep_on_failure_keeps_failures_only(
    engine: Any, make_task: Make, keep: bool, ending: Any, status: str
) -> None:
    """TC09, TC10: by default all is torn down; with the flag only what failed is kept, the rest
    is torn down all the same, and what is kept is named."""
    if ending == "interrupt":
        engine.at(3.0, engine.interrupts.interrupt)
        ending = hang
    outcome = engine.execute(
        make_task(connect, devices=("ocs",)),
        make_task(ending, deadline_s=5),
        always=(make_task(nothing, "always"),),
        trials=3,
        options={"keep_on_failure": keep},
    )
    assert outcome.status == status
    kept = keep and status == "failed"
    assert list(outcome.dirty) == (["ocs"] if kept else [])
    assert bool(engine.of("cleanup")) is not kept
    assert len(engine.of("trial.finished")) == (1 if kept or status == "interrupted" else 3)


def test_what_was_kept_is_dirty_and_recover_brings_it_back(engine: Any, make_task: Make) -> None:
    """On a rack whose state outlives the run."""
    outcome = engine.execute(
        make_task(connect, devices=("ocs",)),
        make_task(fail),
        virtual=False,
        options={"keep_on_failure": True},
    )
    assert list(outcome.dirty) == ["ocs"]
    (run,) = dirty(engine.rack, engine.state_dir)
    assert run.devices == ("ocs",) and run.run == outcome.run_id
    refused = engine.execute(make_task(nothing), virtual=False)
    assert refused.exit_code == EXIT_DEVICE
    assert "ocs" in refused.error.message and "testbed recover" in str(refused.error.remedy)
    assert refused.folder is None
    again = engine.execute(make_task(nothing), virtual=False, options={"recover_first": True})
    assert again.exit_code == EXIT_OK
    assert dirty(engine.rack, engine.state_dir) == []
