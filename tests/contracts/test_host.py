"""Contract of Host, GpuHost and NicHost."""

import pytest
import trio

from testbed.errors import DeviceLost, DeviceRefused
from testbed.hal.capabilities import GpuHost, Host, NicHost, Process
from testbed.hal.power import switch_verified
from testbed.hal.types import Carrier, FaultSpec, OutletState
from testbed.timing.clock import now_s


def test_runs_commands_given_as_lists(lab):
    async def scenario(rack):
        host = rack["host"]
        assert isinstance(host, Host)
        result = await host.run(["echo", "a  b", "$HOME; false"])
        assert (result.exit_status, result.stdout) == (0, "a  b $HOME; false\n")
        assert (await host.run(["false"])).exit_status == 1
        assert (await host.run(["cat"], stdin="x\ny\n")).stdout == "x\ny\n"
        missing = await host.run(["no-such-program"])
        assert missing.exit_status == 127 and "not found" in missing.stderr

    lab.run(scenario)


def test_streams_the_lines_of_a_process_and_feeds_it(lab):
    async def scenario(rack):
        process = await rack["host"].spawn(["cat"], tag="run-1")
        assert isinstance(process, Process) and process.host == "host"
        lines = process.lines()
        for text in ("one", "two"):
            await process.send_line(text)
            assert await anext(lines) == text

    lab.run(scenario)


def test_lines_end_with_the_process_and_wait_tells_its_status(lab):
    async def scenario(rack):
        process = await rack["host"].spawn(["echo", "done"], tag="run-1")
        assert [line async for line in process.lines()] == ["done"]
        assert await process.wait() == 0
        assert await rack["host"].processes("run-1") == ()

    lab.run(scenario)


def test_processes_are_found_and_killed_by_tag(lab):
    """TC11: what is left of a run can be found and ended."""

    async def scenario(rack):
        host = rack["host"]
        ours = [await host.spawn(["sleep", "1000"], tag="run-1") for _ in range(2)]
        other = await host.spawn(["sleep", "1000"], tag="run-2")
        assert {p.pid for p in await host.processes("run-1")} == {p.pid for p in ours}
        assert len(await host.processes()) == 3
        assert await host.kill("run-1") == 2
        assert [await p.wait() for p in ours] == [-9, -9]
        assert [p.pid for p in await host.processes()] == [other.pid]
        assert await host.kill("run-1") == 0

    lab.run(scenario)


@pytest.mark.parametrize("number", [9, 15, 2])
def test_a_signal_ends_a_process_at_once(lab, number):
    async def scenario(rack):
        process = await rack["host"].spawn(["sleep", "1000"], tag="t")
        await process.signal(number)
        began = now_s()
        assert await process.wait() == -number
        assert now_s() - began < 0.01
        with pytest.raises(DeviceLost):
            await process.send_line("too late")

    lab.run(scenario)


def test_a_stopped_process_is_silent_and_goes_on(lab):
    async def scenario(rack):
        process = await rack["host"].spawn(["cat"], tag="t")
        await process.signal(19)
        await process.send_line("x")
        lines = process.lines()
        with trio.move_on_after(5) as silence:
            await anext(lines)
        assert silence.cancelled_caught
        await process.signal(18)
        assert await anext(lines) == "x"

    lab.run(scenario)


def test_files_go_there_and_back(lab, tmp_path):
    source, copy = tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"\x00state\xff")

    async def scenario(rack):
        await rack["host"].put(source, "/data/a")
        await rack["host"].get("/data/a", copy)
        with pytest.raises(DeviceRefused, match="no such file"):
            await rack["host"].get("/data/none", copy)

    lab.run(scenario)
    assert copy.read_bytes() == source.read_bytes()


def test_a_host_without_power_says_nothing_any_more(lab):
    """TC19, TC20: a dead host is silence, on old connections and on new ones."""

    async def scenario(rack):
        host = rack["host"]
        process = await host.spawn(["sleep", "1000"], tag="t")
        await switch_verified(rack["power"], [lab.outlet], OutletState.OFF)
        for operation in (process.wait, host.health, lambda: anext(process.lines())):
            with trio.move_on_after(60) as silence:
                await operation()
            assert silence.cancelled_caught
        await switch_verified(rack["power"], [lab.outlet], OutletState.ON)
        assert (await host.health()).uptime_s < 5
        assert await host.processes() == ()
        with pytest.raises(DeviceLost, match="reset"):
            await process.wait()
        assert [line async for line in process.lines()] == []

    lab.run(scenario)


def test_gpus_and_their_errors(lab):
    async def scenario(rack):
        host = rack["host"]
        assert isinstance(host, GpuHost)
        gpus = await host.gpus()
        assert [g.index for g in gpus] == [0, 1] and all(g.healthy for g in gpus)
        assert len({g.uuid for g in gpus}) == 2
        assert await host.gpu_errors() == ()
        await host.inject(FaultSpec("gpu-xid", target="1", params={"xid": 48}))
        (error,) = await host.gpu_errors()
        assert (error.gpu, error.xid) == (1, 48) and "ECC" in error.message
        assert [g.healthy for g in await host.gpus()] == [True, False]

    lab.run(scenario)


def test_carrier_follows_the_light(lab):
    """TC66: a link is up when both interfaces say so, not when the switch has acknowledged."""

    async def scenario(rack):
        host, switch = rack["host"], rack["switch"]
        assert isinstance(host, NicHost)
        before = (await host.interfaces())["p0"]
        assert (before.carrier, before.rate_bps, before.enabled) == (Carrier.DOWN, 0, True)
        report = await switch.apply(lab.link)
        up = await host.wait_carrier("p0", Carrier.UP)
        assert now_s() > report.verified_s
        assert up.carrier is Carrier.UP and up.rate_bps > 0 and up.rx_power_dbm > -20
        await switch.apply([])
        down = await host.wait_carrier("p0", Carrier.DOWN)
        assert down.rate_bps == 0 and down.rx_power_dbm <= -50

    lab.run(scenario)


def test_an_interface_that_is_off_takes_the_far_end_down(lab):
    async def scenario(rack):
        host, peer = rack["host"], rack["peer"]
        await rack["switch"].apply(lab.link)
        await peer.wait_carrier("p0", Carrier.UP)
        await host.set_interface("p0", enabled=False)
        assert not (await host.interfaces())["p0"].enabled
        await peer.wait_carrier("p0", Carrier.DOWN)
        await host.set_interface("p0", enabled=True)
        await peer.wait_carrier("p0", Carrier.UP)
        await host.wait_carrier("p0", Carrier.UP)

    lab.run(scenario)


def test_unknown_interfaces_are_refused(lab):
    async def scenario(rack):
        with pytest.raises(DeviceRefused, match="no interface p7"):
            await rack["host"].wait_carrier("p7", Carrier.UP)
        with pytest.raises(DeviceRefused, match="no interface p7"):
            await rack["host"].set_interface("p7", enabled=False)

    lab.run(scenario)
