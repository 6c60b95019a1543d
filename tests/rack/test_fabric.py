"""The fabric: changes of links over all switches, all or nothing, with their instants."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.errors import DeviceLost, DeviceRefused, DeviceTimeout, RackError, StateMismatch
from testbed.hal.apply import DeclarativeSwitch
from testbed.hal.types import (
    Carrier,
    Circuit,
    NicState,
    PortDirection,
    PortInfo,
    PortState,
)
from testbed.hal.wiring import Endpoint, Fibre, SwitchPort, Wiring
from testbed.rack.circuits import Link, circuits_of
from testbed.rack.fabric import SwitchFabric
from testbed.rack.links import ring
from testbed.rack.rack import Rack, SafeState
from testbed.timing.clock import run
from testbed.timing.marks import Timeline

LINK_UP_S = 0.2


class Switch(DeclarativeSwitch):
    """A switch in memory that can be made to fail."""

    def __init__(self, name: str, ports: int, send_s: float) -> None:
        self._name = name
        self.send_s = send_s
        self.map = {str(n): PortInfo(str(n), PortDirection.BOTH) for n in range(ports)}
        self.now: set[Circuit] = set()
        self.commands = 0
        self.lose: Collection[Circuit] = ()
        self.broken_after: int | None = None

    @property
    def name(self) -> str:
        return self._name

    async def ports(self) -> Mapping[str, PortInfo]:
        return self.map

    async def circuits(self) -> frozenset[Circuit]:
        await trio.sleep(0.001)
        return frozenset(self.now)

    async def send(self, remove: Sequence[Circuit], add: Sequence[Circuit]) -> None:
        self.commands += 1
        await trio.sleep(self.send_s)
        if self.broken_after is not None and self.commands > self.broken_after:
            raise DeviceLost(f"{self._name} does not answer", device=self._name)
        self.now -= set(remove)
        self.now |= set(add) - set(self.lose)


class Nic:
    """The interfaces of a host: a carrier comes when light does, unless it is said not to."""

    def __init__(self, lab: Lab, host: str) -> None:
        self.lab, self.name = lab, host

    async def interfaces(self) -> Mapping[str, NicState]:
        if self.name in self.lab.lost:
            raise DeviceLost(f"{self.name} does not answer", device=self.name)
        return {"p0": NicState("p0", True, Carrier.DOWN, 0.0, -61.0)}

    async def wait_carrier(self, interface: str, carrier: Carrier) -> NicState:
        if self.name in self.lab.lost:
            raise DeviceLost(f"{self.name} does not answer", device=self.name)
        if f"{self.name}.{interface}" in self.lab.dark:
            await trio.sleep_forever()
        await trio.sleep(LINK_UP_S)
        return NicState(interface, True, carrier, 1e10)


class Lab:
    """Hosts with interface ``n`` on switch ``n``: a rack of rails, or of one switch."""

    def __init__(self, hosts: int = 5, switches: int = 2) -> None:
        self.switches = {
            f"ocs{n}": Switch(f"ocs{n}", 4 * hosts, send_s=0.01 * (n + 1)) for n in range(switches)
        }
        fibres = []
        count = dict.fromkeys(self.switches, 0)
        for host in range(hosts):
            for interface in range(2):
                switch = f"ocs{interface % switches}"
                for transmits in (True, False):
                    port = SwitchPort(switch, str(count[switch]))
                    count[switch] += 1
                    fibres.append(Fibre(Endpoint(f"host{host}", f"p{interface}"), port, transmits))
        self.rack = Rack(
            name="lab",
            source="",
            text="",
            sha256="",
            devices={},
            wiring=Wiring.of(fibres, ()),
            safe_state=SafeState(),
        )
        self.lost: set[str] = set()
        self.dark: set[str] = set()
        self.blind: set[str] = set()

    def run(self, scenario) -> None:
        async def main() -> None:
            self.timeline = Timeline(lambda event: None)
            self.fabric = SwitchFabric(
                self.rack,
                self.switches.__getitem__,
                lambda host: None if host in self.blind else Nic(self, host),
                self.timeline,
            )
            await scenario(self.fabric)

        run(main, virtual=True)

    def marks(self) -> list[str]:
        return [mark.name for mark in self.timeline.marks]

    def commands(self) -> int:
        return sum(switch.commands for switch in self.switches.values())


def link(one: str, other: str) -> Link:
    return Link.between(Endpoint.parse(one), Endpoint.parse(other))


RAIL0, RAIL1 = link("host0.p0", "host1.p0"), link("host0.p1", "host1.p1")


def test_links_are_made_over_all_switches_in_parallel_and_the_instants_told():
    """TC66: sent is the first, acknowledged, verified and link-up are the last of all."""
    lab = Lab()

    async def scenario(fabric):
        report = await fabric.change(add=[RAIL0, RAIL1])
        assert report.added == (RAIL0, RAIL1)
        assert (report.circuits_added, report.circuits_removed) == (4, 0)
        # ocs0 takes 10 ms and ocs1 20 ms, each with a read-back of 1 ms.
        assert report.acknowledged_s - report.sent_s == pytest.approx(0.020)
        assert report.verified_s - report.sent_s == pytest.approx(0.021)
        assert report.link_up_s - report.verified_s == pytest.approx(LINK_UP_S)
        assert await fabric.links() == {RAIL0, RAIL1}

    lab.run(scenario)
    assert lab.marks() == [
        "fabric.sent",
        "fabric.acknowledged",
        "fabric.verified",
        "fabric.link-up",
    ]
    times = [mark.t_s for mark in lab.timeline.marks]
    assert times == sorted(times)


def test_what_is_there_already_is_no_work_and_sets_no_mark():
    lab = Lab()

    async def scenario(fabric):
        await fabric.change(add=[RAIL0])
        sent, marks = lab.commands(), len(lab.marks())
        report = await fabric.change(add=[RAIL0], remove=[RAIL1])
        assert not report.changed
        assert report.added == report.removed == ()
        assert (lab.commands(), len(lab.marks())) == (sent, marks)

    lab.run(scenario)


def test_circuits_of_others_stay_and_half_a_link_is_completed():
    lab = Lab()
    foreign = Circuit("18", "19")
    lab.switches["ocs0"].now = {foreign, circuits_of(RAIL0, lab.rack.wiring)[0].circuit}

    async def scenario(fabric):
        assert await fabric.links() == frozenset()
        report = await fabric.change(add=[RAIL0])
        assert (report.added, report.circuits_added) == ((RAIL0,), 1)
        assert foreign in lab.switches["ocs0"].now

    lab.run(scenario)


def test_a_port_in_use_is_refused_in_words_of_links_before_anything_is_sent():
    lab = Lab()
    other = link("host0.p0", "host2.p0")

    async def scenario(fabric):
        await fabric.change(add=[RAIL0])
        sent = lab.commands()
        with pytest.raises(RackError, match=f"link {other} needs port .* which link {RAIL0} uses"):
            await fabric.change(add=[other])
        assert lab.commands() == sent
        await fabric.change(add=[other], remove=[RAIL0])
        assert await fabric.links() == {other}
        with pytest.raises(RackError, match="set up and taken down in one change"):
            await fabric.change(add=[other], remove=[other])

    lab.run(scenario)


def test_what_one_switch_would_refuse_keeps_all_of_them_from_being_commanded():
    lab = Lab()
    lab.switches["ocs1"].map["0"] = PortInfo("0", PortDirection.BOTH, PortState.DISABLED)

    async def scenario(fabric):
        with pytest.raises(DeviceRefused, match="ocs1: port 0 is disabled; nothing was sent"):
            await fabric.change(add=[RAIL0, RAIL1])
        assert lab.commands() == 0

    lab.run(scenario)


def test_when_a_switch_fails_the_others_are_put_back():
    """TC81: all or nothing, and the error says what became of each switch."""
    lab = Lab()
    lab.switches["ocs1"].broken_after = 0

    async def scenario(fabric):
        with pytest.raises(DeviceLost, match="ocs1 does not answer; put back as before: ocs0") as e:
            await fabric.change(add=[RAIL0, RAIL1])
        assert e.value.fields["failed"] == ["ocs1"]
        assert e.value.fields["rolled_back"] == ["ocs0"]
        assert e.value.fields["not_rolled_back"] == []
        assert lab.switches["ocs0"].now == set()
        assert lab.marks() == []

    lab.run(scenario)


def test_a_switch_that_cannot_be_put_back_is_named():
    lab = Lab()
    lab.switches["ocs0"].broken_after = 1
    lab.switches["ocs1"].broken_after = 0

    async def scenario(fabric):
        with pytest.raises(DeviceLost, match="changed, and could not be put back: ocs0"):
            await fabric.change(add=[RAIL0, RAIL1])

    lab.run(scenario)


def test_a_partial_apply_fails_the_change_and_is_read_back_as_it_is():
    """TC78: what is there afterwards is read, not assumed."""
    lab = Lab(switches=1)
    lost = circuits_of(RAIL0, lab.rack.wiring)[1].circuit
    lab.switches["ocs0"].lose = {lost}

    async def scenario(fabric):
        with pytest.raises(StateMismatch, match="missing in the read-back"):
            await fabric.change(add=[RAIL0, RAIL1])
        assert await fabric.links() == {RAIL1}

    lab.run(scenario)


def test_a_missing_carrier_names_the_link_the_end_and_what_was_seen_last():
    """TC28."""
    lab = Lab()
    lab.dark = {"host1.p0"}

    async def scenario(fabric):
        start_s = trio.current_time()
        with pytest.raises(DeviceTimeout) as caught:
            await fabric.change(add=[RAIL0, RAIL1])
        error = caught.value
        assert error.device == "host1"
        assert error.message == (
            f"link {RAIL0} does not come up: interface host1.p0: carrier not up within 10 s "
            "(last seen: enabled, carrier down, receives -61.0 dBm)"
        )
        assert error.fields["links"] == [str(RAIL0)]
        assert trio.current_time() - start_s < 10.1
        assert await fabric.links() == {RAIL0, RAIL1}

    lab.run(scenario)
    assert lab.marks() == ["fabric.sent", "fabric.acknowledged", "fabric.verified"]


def test_a_host_that_is_gone_explains_more_than_a_missing_carrier():
    lab = Lab()
    lab.dark, lab.lost = {"host0.p0"}, {"host1"}

    async def scenario(fabric):
        with pytest.raises(DeviceLost, match="host1 does not answer"):
            await fabric.change(add=[RAIL0])

    lab.run(scenario)


def test_carriers_that_nobody_can_tell_are_not_claimed():
    lab = Lab()
    lab.blind = {"host1"}

    async def scenario(fabric):
        report = await fabric.change(add=[RAIL0])
        assert report.changed
        assert report.link_up_s is None

    lab.run(scenario)
    assert "fabric.link-up" not in lab.marks()


def test_changes_that_run_together_do_not_undo_each_other():
    lab = Lab(switches=1)
    second = link("host2.p0", "host3.p0")

    async def scenario(fabric):
        async with trio.open_nursery() as nursery:
            for new in (RAIL0, second, RAIL1):
                nursery.start_soon(lambda new=new: fabric.change(add=[new]))
        assert await fabric.links() == {RAIL0, RAIL1, second}

    lab.run(scenario)


def test_a_change_that_is_cut_off_is_read_back_before_the_next():
    """TC78: after a cancellation nothing is assumed, and nothing stays locked."""
    lab = Lab()

    async def scenario(fabric):
        with trio.move_on_after(0.016):  # ocs0 has done its part, ocs1 has not
            await fabric.change(add=[RAIL0, RAIL1])
        assert len(lab.switches["ocs0"].now) == 2
        assert lab.switches["ocs1"].now == set()
        report = await fabric.change(add=[RAIL0, RAIL1])
        assert report.added == (RAIL1,)
        assert await fabric.links() == {RAIL0, RAIL1}

    lab.run(scenario)


def test_a_replacement_swaps_the_spare_in_and_leaves_everybody_else_alone():
    lab = Lab(hosts=6, switches=1)
    slice_links = ring(["host0", "host1", "host2"], lab.rack.wiring)
    others = link("host4.p0", "host5.p0")

    async def scenario(fabric):
        await fabric.change(add=[*slice_links, others])
        report = await fabric.replace("host1", "host3", within=["host0", "host1", "host2"])
        assert {k.peer_of("host3") for k in report.added} == {
            k.peer_of("host1") for k in report.removed
        }
        after = await fabric.links()
        assert others in after
        assert len(after) == 4
        assert not any(k.touches("host1") for k in after)
        with pytest.raises(RackError, match="host1 has no links in this slice"):
            await fabric.replace("host1", "host4", within=["host0", "host2", "host3"])

    lab.run(scenario)


def test_a_spare_that_uses_an_interface_one_way_only_does_not_lend_it():
    lab = Lab(hosts=5, switches=1)
    slice_links = ring(["host0", "host1"], lab.rack.wiring)
    one_way = circuits_of(link("host2.p0", "host3.p0"), lab.rack.wiring)[0].circuit
    lab.switches["ocs0"].now = {one_way}

    async def scenario(fabric):
        await fabric.change(add=slice_links)
        with pytest.raises(RackError, match="host2 has 1 free"):
            await fabric.replace("host1", "host2", within=["host0", "host1"])
        assert one_way in lab.switches["ocs0"].now

    lab.run(scenario)


@st.composite
def link_sets(draw):
    """Sets of links of the same lab, each without a port used twice."""
    wiring = Lab(hosts=4, switches=1).rack.wiring
    found = []
    for _ in range(draw(st.integers(1, 5))):
        ends = draw(st.permutations(wiring.endpoints))
        count = draw(st.integers(0, len(ends) // 2))
        found.append({Link.between(ends[2 * n], ends[2 * n + 1]) for n in range(count)})
    return found


@given(link_sets())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_sequence_of_changes_ends_at_the_links_asked_for(wanted):
    lab = Lab(hosts=4, switches=1)

    async def scenario(fabric):
        before: set[Link] = set()
        for links in wanted:
            report = await fabric.change(
                add=sorted(links - before), remove=sorted(before - links), wait_link_up=False
            )
            assert set(report.added) == links - before
            assert set(report.removed) == before - links
            assert await fabric.links() == links
            before = links

    lab.run(scenario)
