"""Contract of PowerController and PowerMeter."""

import pytest
import trio

from testbed.errors import DeviceRefused
from testbed.hal.capabilities import PowerController, PowerMeter
from testbed.hal.power import cycle_verified, switch_verified
from testbed.hal.types import OutletState


def test_outlets_start_on_and_switch(lab):
    async def scenario(rack):
        power = rack["power"]
        assert isinstance(power, PowerController)
        assert (await power.outlets())[lab.outlet] is OutletState.ON
        report = await switch_verified(power, [lab.outlet], OutletState.OFF)
        assert report.changed and report.acknowledged_s < report.verified_s
        assert (await power.outlets())[lab.outlet] is OutletState.OFF

    lab.run(scenario)


def test_an_acknowledgement_is_not_the_relay(lab):
    """TC72: ``switch`` does not wait; who waits is :mod:`testbed.hal.power`."""

    async def scenario(rack):
        power = rack["power"]
        report = await switch_verified(power, [lab.outlet], OutletState.OFF)
        assert report.verified_s - report.acknowledged_s > 0.01

    lab.run(scenario)


def test_switching_an_unknown_outlet_is_refused(lab):
    async def scenario(rack):
        with pytest.raises(DeviceRefused, match="no outlet 77"):
            await rack["power"].switch("77", OutletState.ON)

    lab.run(scenario)


def test_a_cycle_is_seen_off_before_it_is_on(lab):
    """TC69, TC71: off is verified, then the pause, then on, with the settle times told."""

    async def scenario(rack):
        host = rack["host"]
        before = await host.health()
        off, on = await cycle_verified(rack["power"], [lab.outlet], pause_s=2.0)
        assert on.sent_s - off.verified_s >= 2.0
        after = await host.health()
        assert after.boot_id != before.boot_id and after.uptime_s < 1.0

    lab.run(scenario)


def test_the_last_of_two_orders_holds(lab):
    async def scenario(rack):
        power = rack["power"]
        await power.switch(lab.outlet, OutletState.OFF)
        await power.switch(lab.outlet, OutletState.ON)
        await trio.sleep(30)
        assert (await power.outlets())[lab.outlet] is OutletState.ON

    lab.run(scenario)


def test_a_meter_sees_what_the_host_does(metered_lab):
    lab = metered_lab

    async def scenario(rack):
        power = rack["power"]
        assert isinstance(power, PowerMeter)
        assert set(await power.outlet_power_w()) == set(await power.outlets())
        idle = (await power.outlet_power_w())[lab.outlet]
        await rack["host"].spawn(["testbed-train", "--settings", SETTINGS], tag="t")
        await trio.sleep(0.1)
        assert (await power.outlet_power_w())[lab.outlet] > idle > 0
        await switch_verified(power, [lab.outlet], OutletState.OFF)
        assert (await power.outlet_power_w())[lab.outlet] == 0

    lab.run(scenario)


SETTINGS = (
    '{"job": "j", "model": "llama-nano", "slot": 0, "heartbeat_s": 0.1, '
    '"collective_timeout_s": 1.0, "checkpoint_every": 0, "options": {}}'
)
