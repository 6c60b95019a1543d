"""Ctrl-C, once and twice, at every kind of moment; in virtual time."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.engine.interrupts import Interrupts
from testbed.errors import EXIT_INTERRUPTED, EXIT_INTERRUPTED_DIRTY, EXIT_OK
from testbed.hal.capabilities import Host, OpticalSwitch, PowerController
from testbed.hal.types import Circuit
from testbed.store.reader import open_run

Make = Callable[..., Any]
LINK = Circuit("1", "10")


async def connect(context: Any, args: Any) -> None:
    await context.device("ocs", OpticalSwitch).apply({LINK})


async def spawn(context: Any, args: Any) -> None:
    await context.device("host0", Host).spawn(["sleep", "1000"], tag=context.run_id)


async def wait(context: Any, args: Any) -> None:
    await trio.sleep(1.0)


async def spin(context: Any, args: Any) -> None:
    """Never waits for anything."""


def test_once_stops_cleans_up_stores_and_exits_130(engine: Any, make_task: Make) -> None:
    """DESIGN 7.5. TC01, TC14, TC17: cleanup runs, completed trials are kept, the end is stored."""
    engine.at(2.5, engine.interrupts.interrupt)
    outcome = engine.execute(
        make_task(connect), make_task(wait), trials=5, always=(make_task(wait, "always"),)
    )
    assert (outcome.status, outcome.exit_code) == ("interrupted", EXIT_INTERRUPTED)
    assert outcome.dirty == {} and outcome.error is None
    finished = engine.of("trial.finished")
    assert [e["status"] for e in finished] == ["passed", "interrupted"]
    assert [e["status"] for e in engine.of("cleanup")] == ["ok", "ok"]
    run = open_run(outcome.folder)
    assert run.status == "interrupted"
    assert sum(1 for _ in run.trials()) == 2
    assert engine.of("expectation") == []


def test_twice_skips_the_rest_of_the_cleanup_and_exits_131(engine: Any, make_task: Make) -> None:
    """DESIGN 7.5: what was not cleaned up is named dirty."""
    ran: list[str] = []

    async def last(context: Any, args: Any) -> None:
        ran.append("last")

    engine.at(0.8, engine.interrupts.interrupt)
    engine.at(1.2, engine.interrupts.interrupt)
    outcome = engine.execute(
        make_task(connect, devices=("ocs",)),
        make_task(wait),
        always=(make_task(wait, "first"), make_task(last)),
    )
    assert (outcome.status, outcome.exit_code) == ("interrupted", EXIT_INTERRUPTED_DIRTY)
    assert list(outcome.dirty) == ["ocs"]
    assert ran == []
    assert [e["status"] for e in engine.of("cleanup")] == ["skipped", "skipped"]
    assert open_run(outcome.folder).status == "interrupted"


def test_an_interrupt_during_cleanup_lets_it_end(engine: Any, make_task: Make) -> None:
    engine.at(1.5, engine.interrupts.interrupt)
    outcome = engine.execute(
        make_task(connect), make_task(wait), trials=3, always=(make_task(wait, "always"),)
    )
    assert outcome.exit_code == EXIT_INTERRUPTED
    assert [e["status"] for e in engine.of("trial.finished")] == ["passed"]


def test_always_of_a_block_runs_and_rescue_does_not(
    engine: Any, make_task: Make, make_block: Make
) -> None:
    """TC01: what was entered is left in order."""
    ran: list[str] = []

    def note(name: str) -> Any:
        async def body(context: Any, args: Any) -> None:
            await trio.sleep(0.5)
            ran.append(name)

        return make_task(body)

    engine.at(0.7, engine.interrupts.interrupt)
    engine.execute(
        make_block(
            make_block(make_task(wait), rescue=(note("rescue"),), always=(note("inner"),)),
            rescue=(note("rescue"),),
            always=(note("outer"),),
        ),
        note("later"),
    )
    assert ran == ["inner", "outer"]


def test_a_playbook_that_never_waits_can_be_interrupted(engine: Any, make_task: Make) -> None:
    count = 0

    async def body(context: Any, args: Any) -> None:
        nonlocal count
        count += 1
        if count == 100:
            engine.interrupts.interrupt()

    outcome = engine.execute(make_task(body, loop="range(10000)"))
    assert outcome.exit_code == EXIT_INTERRUPTED
    assert count <= 102


def test_before_the_loop_runs(engine: Any, make_task: Make) -> None:
    """TC06: an interrupt that comes before anything has begun."""
    engine.interrupts.interrupt()
    outcome = engine.execute(make_task(connect))
    assert (outcome.exit_code, outcome.status) == (EXIT_INTERRUPTED, "interrupted")
    assert engine.events == [] or engine.of("trial.started") == []


def test_while_it_waits_for_the_lease(engine: Any, make_task: Make) -> None:
    """TC06."""
    from testbed.engine.paths import rack_folder
    from testbed.rack.lease import acquire
    from testbed.timing.clock import run

    folder = rack_folder(engine.rack, engine.state_dir)

    async def take() -> Any:
        return await acquire(folder, rack="mock", run="somebody")

    lease = run(take)
    told: list[str] = []

    def watch(event: dict[str, Any]) -> None:
        told.append(event["message"])
        engine.interrupts.interrupt()

    outcome = engine.execute(
        make_task(connect),
        virtual=False,
        options={"wait_for_lease_s": 60.0, "observers": (watch,)},
    )
    lease.release()
    assert outcome.exit_code == EXIT_INTERRUPTED
    assert told and "run somebody" in told[0]


def test_while_results_are_written_they_are_written(engine: Any, make_task: Make) -> None:
    """TC06: nothing is left to stop, so the outcome stands; and no traceback."""

    def watch(event: dict[str, Any]) -> None:
        if event["kind"] == "run.finished":
            os.kill(os.getpid(), signal.SIGINT)

    outcome = engine.execute(make_task(spin), options={"observers": (watch,)})
    assert (outcome.status, outcome.exit_code) == ("passed", EXIT_OK)
    assert engine.interrupts.count == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_interrupts_and_handlers_come_back(
    engine: Any, make_task: Make, number: int
) -> None:
    before = signal.getsignal(number)

    async def kill(context: Any, args: Any) -> None:
        os.kill(os.getpid(), number)
        await trio.sleep(10)

    outcome = engine.execute(make_task(kill))
    assert outcome.exit_code == EXIT_INTERRUPTED
    assert signal.getsignal(number) is before


# --- at any moment ---------------------------------------------------------------------------


def interrupted_run(engine: Any, instants: list[float], make_task: Make, make_block: Make) -> Any:
    """A trial with light, a process, power, blocks; interrupted at these instants."""
    for instant in instants:
        engine.at(instant, engine.interrupts.interrupt)

    async def power(context: Any, args: Any) -> None:
        from testbed.hal.power import switch_verified
        from testbed.hal.types import OutletState

        await switch_verified(context.device("pdu", PowerController), ["5"], OutletState.OFF)

    async def look(context: Any, args: Any) -> None:
        await context.device("ocs", OpticalSwitch).circuits()

    async def add(context: Any, args: Any) -> None:
        async def step() -> None:
            await context.device("ocs", OpticalSwitch).circuits()

        context.add_cleanup("look", step)

    return engine.execute(
        make_task(add),
        make_task(connect, devices=("ocs", "host0", "pdu")),
        make_block(make_task(spawn), make_task(power), always=(make_task(look),)),
        make_task(wait),
        always=(make_task(wait, "always"),),
        trials=2,
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.floats(0, 6), min_size=1, max_size=3))
def test_at_any_instant(
    tmp_path_factory: Any,
    make_engine: Make,
    make_task: Make,
    make_block: Make,
    instants: list[float],
) -> None:
    """TC06: once or more at any instant: devices are safe or named dirty, the run is stored and
    readable, and the exit code says how it was ended."""
    engine = make_engine(tmp_path_factory.mktemp("i"))
    outcome = interrupted_run(engine, instants, make_task, make_block)
    came = engine.interrupts.count
    expected = {0: EXIT_OK, 1: EXIT_INTERRUPTED}.get(came, EXIT_INTERRUPTED_DIRTY)
    assert outcome.exit_code == expected
    run = open_run(outcome.folder)
    assert run.status == outcome.status
    rows = list(run.trials())
    assert all(row["status"] in ("passed", "interrupted") for row in rows)
    told = {e["device"]: e["safe"] for e in engine.of("safe-state")}
    assert all(safe for safe in told.values()) is (outcome.dirty == {})
    if came < 2:
        assert outcome.dirty == {}
        assert all(e["status"] == "ok" for e in engine.of("cleanup"))
    assert engine.of("run.finished")[-1]["exit_code"] == outcome.exit_code


def test_scopes_that_are_made_after_the_interrupt_are_ended_too() -> None:
    from testbed.timing.clock import run

    async def main() -> list[bool]:
        interrupts = Interrupts()
        interrupts.interrupt()
        with interrupts.stoppable() as first:
            await trio.sleep(1)
        with interrupts.sheltered() as second:
            await trio.sleep(1)
        interrupts.interrupt()
        with interrupts.sheltered() as third:
            await trio.sleep(1)
        return [s.cancelled_caught for s in (first, second, third)]

    assert run(main, virtual=True) == [True, False, True]
