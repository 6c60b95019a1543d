"""Commands by hand: a dead device disturbs only who needs it, and Ctrl-C leaves nothing unsaid."""

import json
import signal
import time

import pytest


def as_json(done):
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def holder(cli):
    return as_json(cli("rack", "lease", "--format", "json"))


def wait_until(condition, limit_s=20.0):
    """Another process is watched, in real time."""
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, "it did not come"


def outlet(cli, name):
    return as_json(cli("power", "status", "--format", "json"))["outlets"][name]["state"]


def test_an_interrupted_power_cycle_says_that_the_host_may_be_dark(cli):
    """TC78: unknown is never assumed good, and never left unsaid."""
    cycling = cli.start("power", "cycle", "host1", "--pause", "60 s")
    world = cli.folder / "state"

    def is_off():
        texts = [p.read_text("utf-8") for p in world.rglob("*.json") if p.is_file()]
        return any('"off"' in text for text in texts)

    wait_until(is_off)
    cycling.send_signal(signal.SIGINT)
    out, err = cycling.communicate(timeout=20)
    assert cycling.returncode == 130
    assert out == ""
    assert err.startswith("interrupted; host1 may be without power")
    assert "testbed power on host1 --rack mock" in err
    assert "Traceback" not in err
    assert holder(cli) is None
    assert outlet(cli, "pdu.2") == "off"
    assert cli("power", "on", "host1").returncode == 0


def test_a_host_without_power_disturbs_nobody_else(cli):
    assert cli("power", "off", "host3").returncode == 0
    done = cli("status", "--format", "json")
    record = as_json(done)
    assert done.returncode == 0
    assert record["hosts"]["host3"] == "off: no feed has power"
    assert record["hosts"]["host0"].startswith("up")
    assert record["errors"] == {}
    assert as_json(cli("power", "read", "--format", "json"))["power_w"]["pdu.4"] == 0
    assert cli("switch", "connect", "host0.p0", "host1.p0").returncode == 0
    assert "host3" in cli("host", "list").stdout


@pytest.fixture
def impatient(cli, tmp_path):
    """The built-in rack, whose devices are given up after a quarter of a second."""
    from testbed.rack.loader import load_rack

    text = load_rack("mock").text.replace("name: mock", "name: impatient")
    path = tmp_path / "impatient.yaml"
    path.write_text(f"{text}\ndeadlines: {{open: 250 ms}}\n")
    assert cli("power", "off", "host3", "--rack", str(path)).returncode == 0
    return str(path)


def test_devices_that_cannot_be_connected_are_told_beside_the_others(cli, impatient):
    done = cli("devices", "--connect", "--rack", impatient, "--format", "json")
    assert done.returncode == 3
    rows = {row["device"]: row for row in as_json(done)}
    assert "host3 did not finish open" in rows["host3"]["error"]
    assert "piezo" in rows["ocs"]["identity"]
    shown = cli("devices", "--connect", "--rack", impatient)
    assert "did not" in shown.stdout
    assert shown.returncode == 3


def test_a_link_of_a_dead_host_can_be_taken_down_but_not_set_up(cli, impatient):
    before = cli("switch", "connect", "host0.p0", "host3.p0", "--rack", impatient)
    assert before.returncode == 3
    shown = as_json(cli("switch", "show", "--rack", impatient, "--format", "json"))
    assert shown["circuits"]["ocs"] == []  # refused before anything was sent
    assert cli("switch", "apply", "1>15", "7>9", "--rack", impatient).returncode == 0
    done = cli("switch", "disconnect", "host0.p0", "host3.p0", "--rack", impatient)
    assert done.returncode == 0, done.stderr
    assert "down" in done.stdout


def test_ctrl_c_while_a_device_does_not_answer_is_one_line(cli):
    cli("power", "off", "host3")
    hanging = cli.start("devices", "--connect")
    wait_until(lambda: holder(cli) is not None)
    hanging.send_signal(signal.SIGINT)
    out, err = hanging.communicate(timeout=20)
    assert hanging.returncode == 130
    assert (out, err) == ("", "interrupted\n")
    assert holder(cli) is None


def test_ctrl_c_ends_the_wait_for_a_rack(cli):
    holding = cli.start("power", "cycle", "host1", "--pause", "60 s")
    wait_until(lambda: holder(cli) is not None)
    waiting = cli.start("switch", "show", "--wait", "10 min")
    refused = cli("switch", "show")
    assert refused.returncode == 4
    assert "power cycle" in refused.stderr
    waiting.send_signal(signal.SIGTERM)
    waiting.communicate(timeout=20)
    holding.send_signal(signal.SIGINT)
    holding.communicate(timeout=20)
    assert waiting.returncode in (130, -signal.SIGTERM)  # before or after it began to wait
    assert holding.returncode == 130


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",),
        ("devices",),
        ("switch", "list"),
        ("switch", "show"),
        ("switch", "power", "1"),
        ("switch", "connect", "host0.p0", "host1.p0"),
        ("switch", "disconnect", "host0.p0", "host1.p0"),
        ("switch", "apply", "1>9"),
        ("power", "status"),
        ("power", "read"),
        ("power", "on", "host0"),
        ("power", "cycle", "host0", "--pause", "1 ms"),
        ("host", "list"),
        ("host", "health", "host0"),
        ("host", "gpus", "host0"),
        ("host", "nics", "host0"),
        ("host", "kill", "host0", "nothing"),
        ("rack", "list"),
        ("rack", "show"),
    ],
    ids=" ".join,
)
def test_whatever_comes_from_a_mock_says_so(cli, arguments, tmp_path):
    """On a rack whose name does not give it away."""
    from testbed.rack.loader import load_rack

    path = tmp_path / "bench.yaml"
    path.write_text(load_rack("mock").text.replace("name: mock", "name: bench"))
    done = cli(*arguments, TESTBED_RACK=str(path))
    assert done.returncode == 0, done.stderr
    text = done.stdout.replace("testbed mock", "")  # what a twin calls itself
    assert "mock" in text


def test_circuits_are_cleared_only_when_that_is_said(cli):
    assert cli("switch", "apply", "1>9").returncode == 0
    nothing = cli("switch", "apply")
    assert nothing.returncode == 2
    assert "--clear" in nothing.stderr
    both = cli("switch", "apply", "--clear", "1>9")
    assert both.returncode == 2
    assert "1 removed" in cli("switch", "apply", "--clear").stdout


def test_gpus_and_interfaces_are_read(cli):
    gpus = as_json(cli("host", "gpus", "host0", "--format", "json"))
    assert gpus["backend"] == "mock"
    assert gpus["gpus"][0]["healthy"] is True
    nics = as_json(cli("host", "nics", "host0", "--format", "json"))
    assert [nic["interface"] for nic in nics["interfaces"]] == ["p0", "p1"]
    wrong = cli("host", "gpus", "ocs")
    assert wrong.returncode == 3
    assert "ocs (circuit-switch) is no gpu-host" in wrong.stderr
