"""Contract of OpticalSwitch and OpticalPowerMonitor."""

import pytest

from testbed.errors import DeviceRefused, StateMismatch
from testbed.hal.capabilities import Device, OpticalPowerMonitor, OpticalSwitch
from testbed.hal.types import Circuit, FaultSpec, PortDirection, PortState


def test_opening_twice_identifies_twice(lab):
    async def scenario(rack):
        switch = rack["switch"]
        assert isinstance(switch, Device) and isinstance(switch, OpticalSwitch)
        assert await switch.open() == await switch.open()
        assert switch.name == "switch"

    lab.run(scenario)


def test_starts_without_circuits_and_with_enabled_ports(lab):
    """TC54: a twin starts from the defaults of its driver."""

    async def scenario(rack):
        assert await rack["switch"].circuits() == frozenset()
        ports = await rack["switch"].ports()
        assert set(lab.ports) <= set(ports)
        assert {info.state for info in ports.values()} == {PortState.ENABLED}
        assert all(info.port == port for port, info in ports.items())

    lab.run(scenario)


def test_apply_makes_exactly_the_target_and_tells_three_instants(lab):
    """TC66: acknowledged is not verified, and both are told."""

    async def scenario(rack):
        switch = rack["switch"]
        first = await switch.apply(lab.link)
        assert await switch.circuits() == lab.link
        assert set(first.added) == lab.link and not first.removed and first.unchanged == 0
        assert first.sent_s < first.acknowledged_s < first.verified_s
        kept = min(lab.link)
        second = await switch.apply({kept, lab.spare_circuit})
        assert await switch.circuits() == {kept, lab.spare_circuit}
        assert second.added == (lab.spare_circuit,)
        assert set(second.removed) == lab.link - {kept}
        assert second.unchanged == 1

    lab.run(scenario)


def test_applying_what_is_there_sends_nothing_and_says_so(lab):
    async def scenario(rack):
        switch = rack["switch"]
        await switch.apply(lab.link)
        await switch.inject(FaultSpec("refuse", operation="send"))
        again = await switch.apply(lab.link)
        assert not again.changed and again.unchanged == len(lab.link)
        assert again.sent_s is None and again.verified_s is None

    lab.run(scenario)


def test_port_conflict_is_refused_before_anything_is_sent(lab):
    async def scenario(rack):
        switch = rack["switch"]
        await switch.apply(lab.link)
        one = min(lab.link)
        clash = Circuit(one.ingress, lab.spare_circuit.egress)
        with pytest.raises(DeviceRefused, match=f"port {one.ingress} is used twice"):
            await switch.apply({one, clash})
        assert await switch.circuits() == lab.link

    lab.run(scenario)


def test_unknown_and_wrong_way_ports_are_refused(lab):
    async def scenario(rack):
        switch = rack["switch"]
        with pytest.raises(DeviceRefused, match="port 9999 does not exist"):
            await switch.apply({Circuit(lab.ports[0], "9999")})
        ports = await switch.ports()
        egress = [p for p, i in ports.items() if i.direction is PortDirection.EGRESS]
        if egress:
            with pytest.raises(DeviceRefused, match="no light can enter"):
                await switch.apply({Circuit(egress[0], egress[1])})

    lab.run(scenario)


def test_light_follows_the_circuits(lab):
    async def scenario(rack):
        switch = rack["switch"]
        assert isinstance(switch, OpticalPowerMonitor)
        host_tx, _, _, peer_rx = lab.ports
        before = await switch.port_power_dbm([host_tx, peer_rx])
        assert before[host_tx] > -10 and before[peer_rx] <= -50
        report = await switch.apply(lab.link)
        assert report.light_checked
        after = await switch.port_power_dbm([host_tx, peer_rx])
        assert -20 < after[peer_rx] < after[host_tx]
        await switch.apply([])
        assert (await switch.port_power_dbm([peer_rx]))[peer_rx] <= -50

    lab.run(scenario)


def test_reading_the_light_of_an_unknown_port_is_refused(lab):
    async def scenario(rack):
        with pytest.raises(DeviceRefused, match="9999"):
            await rack["switch"].port_power_dbm(["9999"])

    lab.run(scenario)


def test_a_dark_circuit_is_a_state_mismatch_that_names_it(lab):
    """TC66, TC81: a device that acknowledges without light fails the operation."""

    async def scenario(rack):
        switch = rack["switch"]
        victim = min(lab.link)
        await switch.inject(FaultSpec("dark-circuit", target=str(victim)))
        with pytest.raises(StateMismatch, match="no light through") as caught:
            await switch.apply(lab.link)
        assert caught.value.fields["dark"] == [str(victim)]
        await switch.clear_faults()
        await switch.apply([])
        assert (await switch.apply(lab.link)).light_checked

    lab.run(scenario)
