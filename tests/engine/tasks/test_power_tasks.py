"""Tasks on power, over the mock twins: hosts with two feeds on two controllers."""

from __future__ import annotations

import pytest
import trio
from pydantic import ValidationError

from testbed.engine.tasks.power import SwitchArgs
from testbed.errors import DeviceError, RackError, StateMismatch
from testbed.hal.types import FaultSpec, OutletState
from testbed.playbook.args import RackNames

ALL = {"pdu0.1": "on", "pdu1.1": "on"}


def test_a_host_is_switched_over_all_its_feeds(bench):
    async def scenario(bench):
        assert await bench.do("power.status", host="host0") == {
            "outlets": ALL,
            "on": True,
            "all_on": True,
        }
        off = await bench.do("power.off", host="host0")
        assert off["changed"] and off["outlets"] == ["pdu0.1", "pdu1.1"]
        assert off["settle_s"] > 0
        assert not (await bench.do("power.status", host="host0"))["on"]
        assert not (await bench.do("power.off", host="host0"))["changed"]
        await bench.do("power.on", outlets=["pdu0.1"])
        half = await bench.do("power.status", host="host0")
        assert half["on"] and not half["all_on"]

    bench.run(scenario)
    assert bench.marks() == [
        "power.off-sent",
        "power.off-verified",
        "power.on-sent",
        "power.on-verified",
    ]
    settled = [e for e in bench.events if e["kind"] == "log"]
    assert len(settled) == 3
    assert all(e["settle_s"] >= 0 for e in settled)


def test_a_cycle_boots_the_host_again_and_tells_the_time_without_power(bench):
    """TC69, TC72."""

    async def scenario(bench):
        before = await bench.do("host.health", host="host0")
        cycled = await bench.do("power.cycle", host="host0", pause="2 s")
        assert 2.0 <= cycled["off_s"] < 2.5
        booted = await bench.do("host.wait-boot", host="host0", not_boot=before["boot_id"])
        assert booted["boot_id"] != before["boot_id"]
        assert booted["waited_s"] > 1.0

    bench.run(scenario)
    assert bench.marks()[-1] == "host.booted"


def test_an_unreachable_feed_fails_by_name_with_nothing_switched(bench):
    async def scenario(bench):
        await bench.twins["pdu1"].inject(FaultSpec("unreachable", count=None))
        with trio.fail_after(60), pytest.raises(DeviceError, match=r"feed pdu1\.1 failed"):
            await bench.do("power.off", host="host0")
        assert (await bench.twins["pdu0"].outlets())["1"] is OutletState.ON

    bench.run(scenario)


def test_a_relay_that_does_not_follow_is_found_out(bench):
    """TC66, TC71: acknowledged is not verified; the wait has a deadline and it is told."""

    async def scenario(bench):
        await bench.twins["pdu0"].inject(FaultSpec("relay-stuck", target="1"))
        with pytest.raises(StateMismatch, match=r"pdu0\.1 failed: .* outlet 1 reads on"):
            await bench.do("power.off", host="host0", verify_within="3 s")
        # The other feed, which did follow, is on again: the host has kept its redundancy.
        assert (await bench.twins["pdu1"].outlets())["1"] is OutletState.ON

    bench.run(scenario)


def test_watts_are_read_per_outlet_and_summed_over_the_feeds(bench):
    async def scenario(bench):
        read = await bench.do("power.read", host="host0")
        assert set(read["outlets_w"]) == set(ALL)
        assert read["total_w"] == pytest.approx(sum(read["outlets_w"].values()))
        assert read["total_w"] > 50
        with pytest.raises((RackError, DeviceError), match="99"):
            await bench.do("power.read", outlets=["pdu0.99"])

    bench.run(scenario)


def test_a_plan_names_the_outlets_and_the_inner_deadline(bench):
    plan = bench.plan("power.cycle", host="host1", pause="3 s")
    assert plan.devices == ("pdu0", "pdu1")
    assert plan.changes == ("outlet pdu0.2 off, then on", "outlet pdu1.2 off, then on")
    assert plan.nested_deadlines_s == {"verify_within": 10.0}
    assert plan.estimate_s >= 3.0
    with pytest.raises(RackError, match="host9 has no feed"):
        bench.plan("power.off", host="host9")


@pytest.mark.parametrize("args", [{}, {"host": "host0", "outlets": ["pdu0.1"]}, {"outlets": ["1"]}])
def test_a_target_is_a_host_or_outlets(bench, args):
    with pytest.raises(ValidationError):
        bench.plan("power.off", **args)


def test_an_outlet_of_no_device_is_found_before_anything_runs():
    """The loader hands in the names of the rack, and reports this at its place."""
    names = RackNames(frozenset({"host0"}), frozenset({"pdu0", "pdu1"}), frozenset())
    with pytest.raises(ValidationError, match="no device 'pdu2'; did you mean"):
        SwitchArgs.model_validate({"outlets": ["pdu2.1"]}, context=names)
    assert SwitchArgs.model_validate({"outlets": ["pdu1.1"]}, context=names).outlets
