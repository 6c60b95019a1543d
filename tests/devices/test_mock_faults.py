"""Every fault kind of the twins, and what it does to the rest of the rack."""

import pytest
import trio

from devices.mock.rack import mock_rack
from testbed.errors import DeviceLost, DeviceRefused, StateMismatch
from testbed.hal.power import switch_verified
from testbed.hal.types import Carrier, Circuit, FaultSpec, OutletState, PortState
from testbed.hal.wiring import Endpoint, Feed, Fibre, OutletRef, SwitchPort, Wiring
from testbed.timing.clock import now_s, run

HOSTS = ("host0", "host1", "host2")
LINK = (Circuit("1", "12"), Circuit("2", "11"))  # host0 and host1
OTHER = (Circuit("1", "13"), Circuit("3", "11"))  # host0 and host2


def wiring():
    fibres, feeds = [], []
    for n, host in enumerate(HOSTS):
        for port, transmits in ((n + 1, True), (n + 11, False)):
            fibres.append(Fibre(Endpoint(host, "p0"), SwitchPort("ocs", str(port)), transmits))
        feeds += [Feed(OutletRef(pdu, str(n + 1)), host) for pdu in ("pdu-a", "pdu-b")]
    return Wiring(tuple(fibres), tuple(feeds))


DEVICES = {
    "ocs": ("circuit-switch", {"ports": 20}),
    **{host: ("gpu-host", {"interfaces": 1}) for host in HOSTS},
    "pdu-a": ("pdu", {}),
    "pdu-b": ("pdu", {}),
    "bmc0": ("bmc", {"host": "host0"}),
}


def on_rack(scenario, seed=1):
    async def main():
        async with mock_rack(DEVICES, wiring(), seed=seed) as rack:
            await scenario(rack)

    run(main, virtual=True, seed=seed)


async def linked(rack):
    await rack["ocs"].apply(LINK)
    for host in HOSTS[:2]:
        await rack[host].wait_carrier("p0", Carrier.UP)


async def carriers(rack):
    return [(await rack[host].interfaces())["p0"].carrier for host in HOSTS[:2]]


UP, DOWN = Carrier.UP, Carrier.DOWN


# --- processes -----------------------------------------------------------------------------


def test_process_kill_ends_the_stream_at_once():
    async def scenario(rack):
        process = await rack["host0"].spawn(["sleep", "1000"], tag="t")
        await trio.sleep(1)
        injected = now_s()
        await rack["host0"].inject(FaultSpec("process-kill"))
        assert await process.wait() == -9
        assert now_s() - injected < 0.005

    on_rack(scenario)


def test_process_hang_neither_dies_nor_speaks():
    async def scenario(rack):
        process = await rack["host0"].spawn(["cat"], tag="t")
        await rack["host0"].inject(FaultSpec("process-hang", target="t"))
        await process.send_line("x")
        lines = process.lines()
        with trio.move_on_after(60) as silence:
            await anext(lines)
        assert silence.cancelled_caught
        assert [p.tag for p in await rack["host0"].processes()] == ["t"]
        await rack["host0"].clear_faults()
        assert await anext(lines) == "x"

    on_rack(scenario)


def test_a_fault_that_hits_no_process_is_refused():
    async def scenario(rack):
        with pytest.raises(DeviceRefused, match="no process"):
            await rack["host0"].inject(FaultSpec("process-kill"))
        with pytest.raises(DeviceRefused, match="no GPU 5"):
            await rack["host0"].inject(FaultSpec("gpu-xid", target="5"))

    on_rack(scenario)


# --- power ---------------------------------------------------------------------------------


def test_power_off_takes_all_feeds_and_the_light():
    async def scenario(rack):
        await linked(rack)
        process = await rack["host0"].spawn(["sleep", "1000"], tag="t")
        await rack["host0"].inject(FaultSpec("power-off"))
        for pdu in ("pdu-a", "pdu-b"):
            assert (await rack[pdu].outlets())["1"] is OutletState.OFF
        assert (await rack["host1"].interfaces())["p0"].carrier is DOWN
        with trio.move_on_after(50) as silence:
            await process.wait()
        assert silence.cancelled_caught
        await rack["host0"].clear_faults()
        assert (await rack["host0"].health()).uptime_s < 1
        await rack["host1"].wait_carrier("p0", UP)

    on_rack(scenario)


def test_a_host_runs_on_either_of_its_feeds():
    async def scenario(rack):
        before = await rack["host0"].health()
        await switch_verified(rack["pdu-a"], ["1"], OutletState.OFF)
        assert (await rack["host0"].health()).boot_id == before.boot_id
        watts = await rack["pdu-b"].outlet_power_w()
        assert watts["1"] == pytest.approx(2 * watts["2"], abs=0.2)
        await switch_verified(rack["pdu-b"], ["1"], OutletState.OFF)
        with trio.move_on_after(50) as silence:
            await rack["host0"].health()
        assert silence.cancelled_caught

    on_rack(scenario)


def test_a_bmc_switches_its_chassis_and_dies_without_standby_power():
    async def scenario(rack):
        await switch_verified(rack["bmc0"], ["system"], OutletState.OFF)
        watts = await rack["pdu-a"].outlet_power_w()
        assert 0 < watts["1"] < 20
        await switch_verified(rack["bmc0"], ["system"], OutletState.ON)
        await rack["host0"].health()
        for pdu in ("pdu-a", "pdu-b"):
            await switch_verified(rack[pdu], ["1"], OutletState.OFF)
        with trio.move_on_after(50) as silence:
            await rack["bmc0"].outlets()
        assert silence.cancelled_caught
        await rack["pdu-a"].switch("1", OutletState.ON)
        assert (await rack["bmc0"].outlets())["system"] is OutletState.ON

    on_rack(scenario)


def test_a_lying_pdu_acknowledges_and_reads_back_and_does_nothing():
    async def scenario(rack):
        before = await rack["host0"].health()
        for pdu in ("pdu-a", "pdu-b"):
            await rack[pdu].inject(FaultSpec("lie", operation="switch"))
            await switch_verified(rack[pdu], ["1"], OutletState.OFF)
        assert (await rack["host0"].health()).boot_id == before.boot_id
        await rack["pdu-a"].clear_faults()
        assert (await rack["pdu-a"].outlets())["1"] is OutletState.ON

    on_rack(scenario)


def test_a_stuck_relay_is_found_by_reading_back():
    """TC69, TC81: an acknowledgement alone would have passed."""

    async def scenario(rack):
        await rack["pdu-a"].inject(FaultSpec("relay-stuck", target="2"))
        with pytest.raises(StateMismatch, match="outlet 2"):
            await switch_verified(rack["pdu-a"], ["2"], OutletState.OFF, verify_s=3)
        await rack["pdu-a"].clear_faults()
        await switch_verified(rack["pdu-a"], ["2"], OutletState.OFF, verify_s=3)

    on_rack(scenario)


def test_outlets_that_fail_by_themselves_come_back_when_cleared():
    async def scenario(rack):
        await rack["pdu-a"].inject(FaultSpec("power-off"))
        assert set((await rack["pdu-a"].outlets()).values()) == {OutletState.OFF}
        await rack["pdu-a"].clear_faults()
        assert set((await rack["pdu-a"].outlets()).values()) == {OutletState.ON}

    on_rack(scenario)


def test_a_dead_system_keeps_its_power_and_needs_a_reboot():
    async def scenario(rack):
        await linked(rack)
        await rack["host0"].inject(FaultSpec("dead"))
        assert (await rack["pdu-a"].outlets())["1"] is OutletState.ON
        assert (await rack["pdu-a"].outlet_power_w())["1"] > 0
        assert (await rack["host1"].interfaces())["p0"].carrier is DOWN
        with trio.move_on_after(100) as silence:
            await rack["host0"].health()
        assert silence.cancelled_caught
        await rack["host0"].clear_faults()
        await rack["host0"].health()

    on_rack(scenario)


def test_a_reboot_changes_the_boot_and_forgets_gpu_errors():
    async def scenario(rack):
        host = rack["host0"]
        before = await host.health()
        await host.inject(FaultSpec("gpu-xid"))
        await host.inject(FaultSpec("reboot"))
        after = await host.health()
        assert after.boot_id != before.boot_id
        assert await host.gpu_errors() == ()

    on_rack(scenario)


# --- light ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "fault", "expected"),
    [
        ("host0", FaultSpec("nic-down"), [DOWN, DOWN]),
        ("host0", FaultSpec("fibre-cut"), [DOWN, DOWN]),
        ("host0", FaultSpec("fibre-cut", params={"direction": "tx"}), [UP, DOWN]),
        ("host0", FaultSpec("fibre-cut", params={"direction": "rx"}), [DOWN, UP]),
        ("ocs", FaultSpec("fibre-cut", target="1"), [UP, DOWN]),
        ("ocs", FaultSpec("fibre-cut", target="11"), [DOWN, UP]),
        ("ocs", FaultSpec("dark-circuit", target="1>12"), [UP, DOWN]),
        ("ocs", FaultSpec("dark-circuit", target="2"), [DOWN, UP]),
        ("ocs", FaultSpec("dark-circuit"), [DOWN, DOWN]),
        ("ocs", FaultSpec("port-disabled", target="1"), [UP, DOWN]),
        ("ocs", FaultSpec("port-failed", target="11"), [DOWN, UP]),
    ],
    ids=lambda value: f"{value.kind}-{value.target}" if isinstance(value, FaultSpec) else None,
)
def test_faults_of_light_take_carriers_and_give_them_back(device, fault, expected):
    async def scenario(rack):
        await linked(rack)
        await rack[device].inject(fault)
        assert await carriers(rack) == expected
        assert await rack["ocs"].circuits() == frozenset(LINK)
        await rack[device].clear_faults()
        for host in HOSTS[:2]:
            await rack[host].wait_carrier("p0", UP)

    on_rack(scenario)


@pytest.mark.parametrize("kind", ["port-disabled", "port-failed"])
def test_a_port_that_is_not_enabled_is_refused(kind):
    async def scenario(rack):
        await rack["ocs"].inject(FaultSpec(kind, target="12"))
        state = (await rack["ocs"].ports())["12"].state
        assert state is PortState(kind.removeprefix("port-"))
        with pytest.raises(DeviceRefused, match=f"port 12 is {state}"):
            await rack["ocs"].apply(LINK)
        assert await rack["ocs"].circuits() == frozenset()

    on_rack(scenario)


def test_a_stuck_port_is_a_state_mismatch():
    async def scenario(rack):
        await linked(rack)
        await rack["ocs"].inject(FaultSpec("port-stuck", target="1"))
        with pytest.raises(StateMismatch) as caught:
            await rack["ocs"].apply(OTHER)
        assert caught.value.fields["missing"] == ["1>13"]
        assert caught.value.fields["unexpected"] == ["1>12"]

    on_rack(scenario)


def test_a_partial_apply_is_acknowledged_and_found_by_reading_back():
    async def scenario(rack):
        await rack["ocs"].inject(FaultSpec("partial", operation="apply"))
        with pytest.raises(StateMismatch):
            await rack["ocs"].apply(LINK)
        assert await rack["ocs"].circuits() == frozenset(LINK[:1])
        await rack["ocs"].apply(LINK)

    on_rack(scenario)


def test_a_lying_switch_reads_back_as_asked_and_only_the_light_tells():
    async def scenario(rack):
        await rack["ocs"].inject(FaultSpec("lie", operation="apply"))
        with pytest.raises(StateMismatch, match="no light"):
            await rack["ocs"].apply(LINK)
        assert await rack["ocs"].circuits() == frozenset(LINK)
        await rack["ocs"].clear_faults()
        assert await rack["ocs"].circuits() == frozenset()

    on_rack(scenario)


@pytest.mark.parametrize(
    ("at", "left"), [("send", 0), (None, 1), ("receive", 2)], ids=["send", "midway", "receive"]
)
def test_a_dropped_connection_leaves_a_state_that_must_be_read_back(at, left):
    async def scenario(rack):
        params = {"at": at} if at else {}
        await rack["ocs"].inject(FaultSpec("drop", operation="apply", params=params))
        with pytest.raises(DeviceLost):
            await rack["ocs"].apply(LINK)
        assert len(await rack["ocs"].circuits()) == left
        report = await rack["ocs"].apply(LINK)
        assert report.unchanged == left
        assert report.light_checked is (left < len(LINK))

    on_rack(scenario)


def test_slow_and_late_take_their_time():
    async def scenario(rack):
        for kind, params, least in (
            ("slow", {"delay_s": 2.0}, 2.0),
            ("late", {"delay_s": 3.0}, 3.0),
        ):
            await rack["ocs"].inject(FaultSpec(kind, operation="circuits", params=params))
            began = now_s()
            await rack["ocs"].circuits()
            assert least < now_s() - began < least + 0.1

    on_rack(scenario)


def test_a_late_answer_is_to_an_operation_that_was_done():
    async def scenario(rack):
        await rack["ocs"].inject(FaultSpec("late", operation="apply", params={"delay_s": 60}))
        with trio.move_on_after(1):
            await rack["ocs"].apply(LINK)
        assert await rack["ocs"].circuits() == frozenset(LINK)

    on_rack(scenario)


# --- faults in time ------------------------------------------------------------------------


def test_a_fault_comes_when_its_time_comes():
    async def scenario(rack):
        await linked(rack)
        began = now_s()
        await rack["host0"].inject(FaultSpec("nic-down", params={"after_s": 0.3}))
        await rack["host1"].wait_carrier("p0", DOWN)
        assert 0.3 <= now_s() - began < 0.31

    on_rack(scenario)


@pytest.mark.parametrize("trigger", ["send", "ocs.send"])
def test_a_second_failure_during_recovery(trigger):
    """The other host dies while the switch is being programmed for the first."""

    async def scenario(rack):
        await linked(rack)
        await rack["host2"].inject(FaultSpec("power-off", params={"on": trigger}))
        await rack["host2"].health()
        await rack["ocs"].apply(OTHER)
        with trio.move_on_after(60) as silence:
            await rack["host2"].health()
        assert silence.cancelled_caught

    on_rack(scenario)


def test_clearing_forgets_what_was_still_to_come():
    async def scenario(rack):
        await linked(rack)
        await rack["host0"].inject(FaultSpec("nic-down", params={"after_s": 0.3}))
        await rack["host0"].inject(FaultSpec("nic-down", params={"on": "circuits"}))
        await rack["host0"].clear_faults()
        await rack["ocs"].circuits()
        await trio.sleep(1)
        assert await carriers(rack) == [UP, UP]

    on_rack(scenario)


def test_the_name_people_use_for_an_operation_works_as_a_trigger():
    async def scenario(rack):
        await linked(rack)
        await rack["host0"].inject(FaultSpec("nic-down", params={"on": "apply"}))
        await rack["ocs"].apply(OTHER)
        assert not (await rack["host0"].interfaces())["p0"].enabled

    on_rack(scenario)
