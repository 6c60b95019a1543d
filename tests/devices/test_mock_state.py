"""The state file: a mock rack in real time is, between two commands, as a real one would be."""

import json
import signal

import pytest

from devices.mock.rack import mock_rack
from testbed.errors import RackError
from testbed.hal.types import Carrier, Circuit, FaultSpec, OutletState, PortState
from testbed.hal.wiring import Endpoint, Feed, Fibre, OutletRef, SwitchPort, Wiring
from testbed.timing.clock import run

WIRING = Wiring(
    tuple(
        Fibre(Endpoint(host, "p0"), SwitchPort("ocs", port), transmits)
        for host, port, transmits in (
            ("host0", "1", True),
            ("host0", "5", False),
            ("host1", "2", True),
            ("host1", "6", False),
        )
    ),
    (Feed(OutletRef("pdu", "1"), "host0"), Feed(OutletRef("pdu", "2"), "host1")),
)
IDEAL = {"class": "ideal"}
DEVICES = {
    "ocs": ("circuit-switch", {"ports": 8, **IDEAL}),
    "host0": ("gpu-host", {"interfaces": 1, **IDEAL}),
    "host1": ("gpu-host", {"interfaces": 1, **IDEAL}),
    "pdu": ("pdu", IDEAL),
}
LINK = {Circuit("1", "6"), Circuit("2", "5")}


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state" / "mock.json"


def session(state, scenario, names=tuple(DEVICES)):
    """One command: only the devices that it needs are made."""

    async def main():
        devices = {name: DEVICES[name] for name in names}
        async with mock_rack(devices, WIRING, virtual=False, state_path=str(state)) as rack:
            await scenario(rack)

    run(main)


def test_circuits_ports_and_light_outlive_the_controller(state):
    async def first(rack):
        await rack["ocs"].apply(LINK)
        await rack["ocs"].inject(FaultSpec("port-disabled", target="7"))

    async def second(rack):
        assert await rack["ocs"].circuits() == LINK
        assert (await rack["ocs"].ports())["7"].state is PortState.DISABLED
        for host in ("host0", "host1"):
            assert (await rack[host].interfaces())["p0"].carrier is Carrier.UP

    session(state, first)
    session(state, second)


def test_an_interface_that_was_switched_off_stays_off(state):
    async def first(rack):
        await rack["host0"].set_interface("p0", enabled=False)

    async def second(rack):
        assert not (await rack["host0"].interfaces())["p0"].enabled
        assert (await rack["host1"].interfaces())["p0"].enabled

    session(state, first)
    session(state, second)


def test_orphans_of_a_dead_controller_are_found_and_killed(state):
    """TC11: ``recover`` finds the processes by their tag."""

    async def first(rack):
        await rack["host0"].spawn(["sleep", "1000"], tag="run-7")
        await rack["host0"].spawn(["sleep", "1000"], tag="run-8")

    async def second(rack):
        orphans = await rack["host0"].processes("run-7")
        assert [(p.argv, p.tag) for p in orphans] == [(("sleep", "1000"), "run-7")]
        assert await rack["host0"].kill("run-7") == 1
        again = await rack["host0"].spawn(["sleep", "1000"], tag="run-9")
        assert again.pid not in {p.pid for p in orphans}

    async def third(rack):
        assert [p.tag for p in await rack["host0"].processes()] == ["run-8", "run-9"]

    for scenario in (first, second, third):
        session(state, scenario)


def test_the_file_is_written_before_the_operation_returns(state):
    """kill -9 of the controller at any moment leaves what had been acknowledged."""

    async def scenario(rack):
        await rack["ocs"].apply(LINK)
        kept = json.loads(state.read_text())["devices"]
        assert kept["ocs"]["circuits"] == ["1>6", "2>5"]
        process = await rack["host1"].spawn(["sleep", "1000"], tag="run-7")
        kept = json.loads(state.read_text())["devices"]
        assert [p["tag"] for p in kept["host1"]["processes"]] == ["run-7"]
        await process.signal(signal.SIGKILL)
        kept = json.loads(state.read_text())["devices"]
        assert kept["host1"]["processes"] == []
        assert [p.name for p in state.parent.iterdir()] == [state.name]

    session(state, scenario)


def test_power_switched_by_hand_reaches_hosts_that_were_not_there(state):
    async def start(rack):
        await rack["host0"].spawn(["sleep", "1000"], tag="run-7")
        boots.append((await rack["host0"].health()).boot_id)

    async def off_and_on(rack):
        for to in (OutletState.OFF, OutletState.ON):
            await rack["pdu"].switch("1", to)
            while (await rack["pdu"].outlets())["1"] is not to:
                pass

    async def look(rack):
        assert await rack["host0"].processes() == ()
        boots.append((await rack["host0"].health()).boot_id)

    boots = []
    session(state, start)
    session(state, off_and_on, names=["pdu"])
    session(state, look)
    assert boots[0] != boots[1]


def test_an_outlet_that_is_off_stays_off(state):
    async def off(rack):
        await rack["pdu"].switch("2", OutletState.OFF)
        while (await rack["pdu"].outlets())["2"] is OutletState.ON:
            pass

    async def look(rack):
        assert (await rack["pdu"].outlets())["2"] is OutletState.OFF
        await rack["pdu"].switch("2", OutletState.ON)

    async def meet(rack):
        assert (await rack["host1"].health()).uptime_s < 60

    session(state, off, names=["pdu"])
    session(state, look, names=["pdu", "host0"])
    session(state, meet)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"version": 99, "devices": {}}',
        '{"version": 1, "devices": []}',
        '{"version": 1, "devices": {"ocs": 7}}',
        '{"version": 1, "devices": {"ocs": {"circuits": ["1-6"], "ports": {}}}}',
        '{"version": 1, "devices": {"ocs": {"circuits": ["1>99"], "ports": {}}}}',
        '{"version": 1, "devices": {"host0": {"boot_id": "x"}}}',
        '{"version": 1, "devices": {"pdu": {"1": "perhaps"}}}',
    ],
)
def test_a_corrupt_file_is_an_error_with_a_remedy(state, content):
    state.parent.mkdir(parents=True)
    state.write_text(content)

    async def nothing(rack):
        raise AssertionError("must not be reached")

    with pytest.raises(RackError, match="cannot be read") as caught:
        session(state, nothing)
    assert caught.value.remedy.startswith(f"delete {state}")


def test_virtual_time_keeps_nothing(state):
    async def main():
        async with mock_rack(DEVICES, WIRING, virtual=True, state_path=str(state)) as rack:
            await rack["ocs"].apply(LINK)

    run(main, virtual=True)
    assert not state.exists()
