"""Operations side by side: the error itself, and nobody left half way without need."""

from __future__ import annotations

import pytest
import trio

from testbed.errors import DeviceLost, DeviceTimeout
from testbed.hal.together import gather, settle
from testbed.timing.clock import run


async def good():
    await trio.sleep(2.0)
    return "good"


async def lost():
    await trio.sleep(1.0)
    raise DeviceLost("gone", device="b")


async def late():
    await trio.sleep(3.0)
    raise DeviceTimeout("late", device="c")


async def defect():
    raise ZeroDivisionError


def test_settle_waits_for_every_one_and_keeps_the_order():
    """TC31: one that fails does not end the others."""

    async def main():
        results, errors = await settle({"c": late, "b": lost, "a": good})
        assert results == {"a": "good"}
        assert [type(e) for e in errors.values()] == [DeviceTimeout, DeviceLost]
        assert trio.current_time() == pytest.approx(start_s + 3.0)
        assert (await settle({"a": good}))[0] == {"a": "good"}
        assert await settle({}) == ({}, {})

    async def timed():
        nonlocal start_s
        start_s = trio.current_time()
        await main()

    start_s = 0.0
    run(timed, virtual=True)


def test_gather_raises_the_first_error_as_it_is_and_cancels_the_rest():
    async def main():
        start_s = trio.current_time()
        with pytest.raises(DeviceLost, match="gone"):
            await gather({"c": late, "b": lost, "a": good})
        assert trio.current_time() - start_s == pytest.approx(1.0)
        assert await gather({"y": good, "x": good}) == {"y": "good", "x": "good"}
        assert await gather({}) == {}

    run(main, virtual=True)


@pytest.mark.parametrize("helper", [gather, settle])
def test_a_defect_is_not_taken_for_an_error_of_a_device(helper):
    async def main():
        with pytest.raises(BaseExceptionGroup) as caught:
            await helper({"a": good, "b": defect})
        assert caught.group_contains(ZeroDivisionError)

    run(main, virtual=True)
