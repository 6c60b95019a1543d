"""Tasks on hosts and their interfaces."""

from __future__ import annotations

import pytest
import trio

from testbed.engine.tasks.host import SHOWN_CHARACTERS
from testbed.errors import DeviceRefused, DeviceTimeout, TaskFailed
from testbed.hal.types import CommandResult


class Shell:
    """Stands in for a host whose commands say what the test wants."""

    def __init__(self, status: int = 0, stdout: str = "", stderr: str = "") -> None:
        self.answer = status, stdout, stderr
        self.ran: list[tuple[tuple[str, ...], str]] = []

    async def run(self, argv, *, stdin=""):
        self.ran.append((tuple(argv), stdin))
        return CommandResult(tuple(argv), *self.answer)


def answering(bench, **answer):
    shell = Shell(**answer)
    bench.device = lambda name, capability: shell
    return shell


def test_a_command_is_a_list_and_its_output_is_kept(bench):
    async def scenario(bench):
        shell = answering(bench, stdout="a\nb\n")
        result = await bench.do("host.run", host="host0", argv=["ls", "a b; c"], stdin="x")
        assert shell.ran == [(("ls", "a b; c"), "x")]
        assert (result["exit_status"], result["stdout"]) == (0, "a\nb\n")

    bench.run(scenario)


@pytest.mark.parametrize(
    ("expected", "passes"), [(0, False), (3, True), ([0, 3], True), ([], True), ([1, 2], False)]
)
def test_the_exit_status_must_be_as_expected(bench, expected, passes):
    async def scenario(bench):
        answering(bench, status=3, stderr="no such model\n")
        work = bench.do("host.run", host="host0", argv=["train"], exit_status=expected)
        if passes:
            assert (await work)["exit_status"] == 3
            return
        with pytest.raises(TaskFailed, match="train on host0 ended with exit status 3: no such"):
            await work

    bench.run(scenario)


def test_long_output_is_stored_whole_and_shown_in_part(bench):
    text = "x" * (SHOWN_CHARACTERS + 1)

    async def scenario(bench):
        answering(bench, stdout=text)
        result = await bench.do("host.run", host="host0", argv=["/bin/dmesg"])
        assert result["stdout"].startswith(text[:-1] + "\n[cut off; all 16385 characters are in ")
        assert bench.artefacts == {"host0-dmesg-0.stdout.txt": text}

    bench.run(scenario)


def test_files_are_copied_there_and_back(bench, tmp_path):
    async def scenario(bench):
        (tmp_path / "in.txt").write_text("hello")
        put = await bench.do(
            "host.put", host="host0", local=str(tmp_path / "in.txt"), remote="/tmp/x"
        )
        got = await bench.do(
            "host.get", host="host0", remote="/tmp/x", local=str(tmp_path / "new" / "out.txt")
        )
        assert put == got == {"bytes": 5}
        assert (tmp_path / "new" / "out.txt").read_text() == "hello"
        with pytest.raises(TaskFailed, match="is no file; nothing was copied"):
            await bench.do("host.put", host="host0", local=str(tmp_path / "no"), remote="/tmp/y")

    bench.run(scenario)


def test_a_host_that_does_not_boot_is_told_with_what_was_seen_last(bench):
    """TC28, TC71: polled with a deadline that holds exactly."""

    async def scenario(bench):
        health = await bench.do("host.health", host="host1")
        start_s = trio.current_time()
        with pytest.raises(DeviceTimeout, match=r"within 7 s \(last seen: still in boot") as e:
            await bench.do("host.wait-boot", host="host1", within="7 s", not_boot=health["boot_id"])
        assert trio.current_time() - start_s == pytest.approx(7.0, abs=1e-6)
        assert e.value.elapsed_s == pytest.approx(7.0)
        await bench.do("power.off", host="host1")
        start_s = trio.current_time()
        with pytest.raises(DeviceTimeout, match="has not booted within 20 s"):
            await bench.do("host.wait-boot", host="host1", within="20 s")
        assert trio.current_time() - start_s == pytest.approx(20.0, abs=1e-6)

    bench.run(scenario)


def test_an_interface_is_read_disabled_and_waited_for(bench):
    async def scenario(bench):
        await bench.do("fabric.connect", links=[["host0.p0", "host1.p0"]])
        state = await bench.do("nic.status", interface="host0.p0")
        assert (state["enabled"], state["carrier"], state["rate_bps"]) == (True, "up", 1e10)
        down = await bench.do("nic.set", interface="host0.p0", enabled=False)
        assert (down["enabled"], down["carrier"]) == (False, "down")
        peer = await bench.do("nic.wait", interface="host1.p0", carrier="down", within="5 s")
        assert peer["carrier"] == "down"
        with pytest.raises(
            DeviceTimeout, match=r"host1\.p0: carrier not up within 2 s \(last seen"
        ):
            await bench.do("nic.wait", interface="host1.p0", within="2 s")
        await bench.do("nic.set", interface="host0.p0", enabled=True)
        assert (await bench.do("nic.wait", interface="host1.p0"))["waited_s"] > 0
        with pytest.raises(DeviceRefused, match="no interface p9"):
            await bench.do("nic.status", interface="host0.p9")

    bench.run(scenario)


def test_plans_name_the_host(bench):
    assert bench.plan("host.run", host="host0", argv=["a", "b"]).changes == ("host0 runs a b",)
    assert bench.plan("nic.wait", interface="host2.p1", within="3 s").nested_deadlines_s == {
        "within": 3.0
    }
    assert bench.plan("nic.set", interface="host2.p1", enabled=False).devices == ("host2",)
