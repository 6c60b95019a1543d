"""Alarms and the jumping clock: the same behaviour in real and in virtual time."""

from __future__ import annotations

import math

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from testbed.timing.alarm import Alarm, sleep
from testbed.timing.clock import is_virtual, now_s, run

BOTH = pytest.mark.parametrize("virtual", [False, True])
INSTANTS = st.lists(st.floats(0, 1e4, allow_nan=False), min_size=1, max_size=20)


@BOTH
def test_an_alarm_ends_at_its_instant(virtual: bool) -> None:
    async def main() -> None:
        assert is_virtual() is virtual
        began = now_s()
        assert await Alarm().wait(began + 0.01) is False
        assert now_s() - began >= 0.01
        await sleep(0.01)
        assert now_s() - began >= 0.02
        assert await Alarm().wait(began) is False  # past already

    run(main, virtual=virtual)


@BOTH
def test_a_ring_ends_the_wait_and_the_alarm_can_be_used_again(virtual: bool) -> None:
    async def main() -> None:
        alarm = Alarm()
        alarm.ring()  # nobody waits: nothing is remembered
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ring_later, alarm)
            assert await alarm.wait(math.inf) is True
        assert await alarm.wait(now_s() + 0.001) is False

    async def ring_later(alarm: Alarm) -> None:
        await sleep(0.005)
        alarm.ring()

    run(main, virtual=virtual)


@BOTH
def test_an_instant_can_be_brought_forward_and_not_put_off(virtual: bool) -> None:
    async def main() -> None:
        alarm = Alarm()
        began = now_s()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(forward, alarm, began)
            assert await alarm.wait(began + 60) is False
        assert 0.02 <= now_s() - began < 5

    async def forward(alarm: Alarm, began: float) -> None:
        await sleep(0.005)
        alarm.bring_forward(began + 0.02)
        alarm.bring_forward(began + 100)

    run(main, virtual=virtual)


@BOTH
def test_a_wait_can_be_cancelled(virtual: bool) -> None:
    async def main() -> None:
        alarm = Alarm()
        with trio.move_on_after(0.01) as scope:
            await alarm.wait(math.inf)
        assert scope.cancelled_caught
        alarm.ring()
        assert await alarm.wait(now_s() + 0.001) is False

    run(main, virtual=virtual)


@given(INSTANTS, INSTANTS)
def test_alarms_and_deadlines_of_trio_keep_one_order(
    alarms: list[float], deadlines: list[float]
) -> None:
    async def main() -> None:
        woken: list[float] = []

        async def by_alarm(at_s: float) -> None:
            await Alarm().wait(at_s)
            assert now_s() == at_s
            woken.append(at_s)

        async def by_deadline(at_s: float) -> None:
            await trio.sleep_until(at_s)
            assert now_s() == at_s
            woken.append(at_s)

        async with trio.open_nursery() as nursery:
            for at_s in alarms:
                nursery.start_soon(by_alarm, at_s)
            for at_s in deadlines:
                nursery.start_soon(by_deadline, at_s)
        assert woken == sorted(woken)

    run(main, virtual=True)


def test_alarms_that_were_taken_back_leave_nothing_behind() -> None:
    async def main() -> None:
        clock = trio.lowlevel.current_clock()
        alarm = Alarm()
        for _ in range(1000):
            with trio.move_on_after(0.001):
                await alarm.wait(now_s() + 0.5)
        assert len(clock._calls) <= 501
        await sleep(1.0)
        assert clock._calls == []

    run(main, virtual=True)


def test_virtual_time_takes_no_time() -> None:
    async def main() -> float:
        await sleep(1e6)
        await trio.sleep(5e4)
        return now_s()

    assert run(main, virtual=True) == 1e6 + 5e4
