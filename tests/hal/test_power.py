"""Power is switched when it is read so, on every feed, or it is told which feed is not."""

from __future__ import annotations

import pytest
import trio

from testbed.errors import DeviceError, DeviceLost, DeviceRefused, StateMismatch
from testbed.hal.feeds import cycle_feeds, read_feeds, switch_feeds
from testbed.hal.power import POLL_S, cycle_verified, switch_verified
from testbed.hal.types import OutletState
from testbed.hal.wiring import OutletRef
from testbed.timing.clock import run

ON, OFF = OutletState.ON, OutletState.OFF
FEEDS = (OutletRef("pdu0", "1"), OutletRef("pdu1", "2"))


def virtually(main):
    return run(main, virtual=True)


def test_switching_ends_when_the_outlet_reads_so_and_tells_its_settle_time(make_power):
    """TC71: polled with a deadline, and the real settle time is told; no fixed sleep."""
    pdu = make_power(settle_s=3.0)

    async def main():
        report = await switch_verified(pdu, ["1"], OFF)
        assert report.commanded == ("1",)
        assert 3.0 <= report.settle_s <= 3.0 + POLL_S + 0.01
        again = await switch_verified(pdu, ["1"], OFF)
        assert not again.changed
        assert len(pdu.log) == 1

    virtually(main)


def test_an_outlet_that_does_not_follow_is_named_when_its_time_is_over(make_power):
    """TC66: software says done, the relay is not."""
    pdu = make_power(stuck={"2"})

    async def main():
        start_s = trio.current_time()
        with pytest.raises(StateMismatch, match="outlet 2 reads on 4 s after off") as caught:
            await switch_verified(pdu, ["1", "2"], OFF, verify_s=4.0)
        assert caught.value.last_state == "1=off, 2=on"
        assert trio.current_time() - start_s == pytest.approx(4.0, abs=0.02)

    virtually(main)


def test_an_unknown_outlet_is_refused_before_anything_is_switched(make_power):
    pdu = make_power()

    async def main():
        with pytest.raises(DeviceRefused, match="no outlet 9"):
            await switch_verified(pdu, ["1", "9"], OFF)
        assert pdu.log == []

    virtually(main)


def test_a_cycle_is_off_verified_pause_on_verified_in_that_order(make_power):
    """TC69: each half is verified by a reading asked for after its own command.
    TC72: the pause is ours, from verified off to the command on."""
    pdu = make_power(settle_s=1.0)

    async def main():
        off, on = await cycle_verified(pdu, ["1", "2"], pause_s=5.0)
        assert off.sent_s < off.acknowledged_s < off.verified_s
        assert on.sent_s >= off.verified_s + 5.0
        assert on.sent_s < on.acknowledged_s < on.verified_s
        assert [state for _, _, state in pdu.log] == ["off", "off", "on", "on"]

    virtually(main)


def test_a_cycle_does_not_believe_a_reading_from_before(make_power):
    """TC69: an outlet that always reads on must not pass as cycled, nor one that reads off
    be left out."""
    pdu = make_power(stale=True)

    async def main():
        with pytest.raises(StateMismatch, match="after off was acknowledged"):
            await cycle_verified(pdu, ["1"], verify_s=1.0)

    virtually(main)
    reads_off = make_power()
    reads_off._reads["1"] = OFF

    async def again():
        await cycle_verified(reads_off, ["1"], pause_s=0.1)
        assert [state for _, _, state in reads_off.log] == ["off", "on"]

    virtually(again)


@pytest.fixture
def two(make_power):
    """Two controllers, each feeding the host once."""
    return {name: make_power(name) for name in ("pdu0", "pdu1")}


def test_a_host_is_switched_over_all_its_feeds_in_parallel(two):
    two["pdu0"].settle_s = two["pdu1"].settle_s = 2.0

    async def main():
        start_s = trio.current_time()
        report = await switch_feeds(FEEDS, OFF, two.__getitem__)
        assert report.changed
        assert trio.current_time() - start_s < 2.5
        assert two["pdu0"].states == {"1": OFF, "2": ON}
        assert two["pdu1"].states == {"1": ON, "2": OFF}

    virtually(main)


@pytest.mark.parametrize("operation", ["off", "cycle"])
def test_an_unreachable_feed_fails_by_name_with_nothing_switched(two, operation):
    two["pdu1"].unreachable = True

    async def main():
        with pytest.raises(DeviceLost, match=r"feed pdu1.2 failed.*nothing was switched") as caught:
            if operation == "off":
                await switch_feeds(FEEDS, OFF, two.__getitem__)
            else:
                await cycle_feeds(FEEDS, two.__getitem__)
        assert caught.value.fields["feeds"] == ["pdu1.2"]
        assert two["pdu0"].log == two["pdu1"].log == []

    virtually(main)


def test_a_feed_that_fails_midway_has_the_others_put_back(two):
    """Not half changed: the host would have lost its redundancy without anybody knowing."""
    two["pdu1"].fails_at = OFF

    async def main():
        with pytest.raises(DeviceLost, match=r"feed pdu1.2 failed.*pdu0.1 was put back on"):
            await switch_feeds(FEEDS, OFF, two.__getitem__)
        assert [state for _, _, state in two["pdu0"].log] == ["off", "on"]
        assert two["pdu0"].states["1"] is ON

    virtually(main)


def test_a_feed_that_does_not_come_on_again_leaves_the_other_on(two):
    two["pdu1"].fails_at = ON

    async def main():
        with pytest.raises(DeviceError, match=r"feed pdu1.2 failed.*pdu0.1 is on"):
            await cycle_feeds(FEEDS, two.__getitem__, pause_s=0.1)
        assert two["pdu0"].states["1"] is ON

    virtually(main)


def test_the_pause_of_a_cycle_counts_from_the_last_feed_that_went_off(two):
    """TC72: the host has been without any power for that long at least."""
    two["pdu1"].settle_s = 4.0

    async def main():
        off, on = await cycle_feeds(FEEDS, two.__getitem__, pause_s=5.0)
        assert off.verified_s - off.sent_s >= 4.0
        assert on.sent_s - off.verified_s >= 5.0
        first_on_s = min(t for p in two.values() for t, _, state in p.log if state == "on")
        last_off_s = max(t for p in two.values() for t, _, state in p.log if state == "off")
        assert first_on_s - last_off_s >= 9.0
        assert await read_feeds(FEEDS, two.__getitem__) == dict.fromkeys(FEEDS, ON)

    virtually(main)
