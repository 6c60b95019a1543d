"""Every command: what it prints where, and how it ends."""

import json
import signal

import pytest
import typer.main
from typer.testing import CliRunner

from testbed.cli.app import app

FAILOVER = "playbooks/failover.yaml"


def commands(command, path=()):
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*path, name))


ALL = [path for path, _ in commands(typer.main.get_command(app))]


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_help_has_an_example(path):
    done = CliRunner().invoke(app, [*path, "--help"])
    assert done.exit_code == 0
    assert "Example" in done.output


def test_a_run_passes_and_prints_json_alone_on_standard_output(cli):
    done = cli("run", FAILOVER, "--virtual-time", "--trials", "3", "--format", "json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["status"] == "passed"
    assert {"run", "backend", "trials", "measures", "phases", "expectations"} <= summary.keys()
    assert {"unit", "n", "min", "median", "p95", "max"} <= summary["measures"]["recovery"].keys()
    assert all(expectation["passed"] for expectation in summary["expectations"])


def test_a_run_shows_the_waterfall_and_where_it_is_stored(cli):
    done = cli("run", FAILOVER, "--virtual-time", "--trials", "2")
    assert done.returncode == 0, done.stderr
    for phase in ("detect", "decide", "program", "light", "link-up", "restore", "first-step"):
        assert phase in done.stdout
    assert "mock" in done.stdout
    assert str(cli.results) in done.stdout


def test_exit_codes_by_kind(cli, tmp_path):
    strict = tmp_path / "strict.yaml"
    strict.write_text(
        "schema: testbed/v1\nname: strict\ntasks:\n  - wait: 1 s\n    register: w\n"
        "measures: {waited: {value: w.waited_s, unit: s}}\nexpect: [waited.max < 1 ms]\n"
    )
    refused = tmp_path / "refused.yaml"
    refused.write_text(
        "schema: testbed/v1\nname: refused\ntasks:\n"
        "  - fault.inject: {device: ocs, kind: refuse, operation: apply}\n"
        "  - fabric.connect: {ring: [host0, host1]}\n"
    )
    broken = tmp_path / "broken.yaml"
    broken.write_text("schema: testbed/v1\nname: broken\ntasks:\n  - wiat: 1 s\n")
    for playbook, code, words in (
        (strict, 1, "waited.max < 1 ms"),
        (broken, 2, "did you mean 'wait'"),
        (refused, 3, "ocs"),
    ):
        done = cli("run", str(playbook), "--virtual-time")
        assert done.returncode == code, done.stderr
        assert words in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_a_held_rack_is_refused_with_its_holder(cli, tmp_path):
    """TC35, TC41: the loser is told who holds it; the lease of a killed run frees itself."""
    slow = tmp_path / "slow.yaml"
    slow.write_text("schema: testbed/v1\nname: slow\ntasks:\n  - wait: 60 s\n")
    holder = cli.start("run", str(slow), "--verbose")
    for line in holder.stderr:
        if "wait" in line:
            break
    done = cli("run", str(slow))
    assert done.returncode == 4
    assert str(holder.pid) in done.stderr
    assert str(holder.pid) in cli("rack", "lease").stdout
    assert cli("status").returncode == 0
    holder.kill()
    holder.communicate()
    assert "free" in cli("rack", "lease").stdout


def test_an_interrupt_cleans_up_stores_and_exits_130(cli, tmp_path):
    slow = tmp_path / "slow.yaml"
    slow.write_text(
        "schema: testbed/v1\nname: slow\ntasks:\n"
        "  - fabric.connect: {ring: [host0, host1]}\n  - wait: 60 s\n"
    )
    running = cli.start("run", str(slow), "--verbose")
    for line in running.stderr:
        if "wait" in line:
            break
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=20)
    assert running.returncode == 130
    shown = json.loads(cli("results", "show", "latest", "--format", "json").stdout)
    assert shown["status"] == "interrupted"
    assert json.loads(cli("switch", "show", "--format", "json").stdout)["links"] == []


def test_recovery_after_a_killed_controller(cli, tmp_path):
    slow = tmp_path / "slow.yaml"
    slow.write_text(
        "schema: testbed/v1\nname: slow\ntasks:\n"
        "  - fabric.connect: {ring: [host0, host1]}\n  - wait: 60 s\n"
    )
    running = cli.start("run", str(slow), "--verbose")
    for line in running.stderr:
        if "wait" in line:
            break
    running.kill()
    running.communicate()
    refused = cli("run", str(slow))
    assert refused.returncode == 3
    assert "testbed recover --rack mock" in refused.stderr
    assert "ocs" in cli("status").stdout
    done = cli("recover")
    assert done.returncode == 0, done.stderr
    assert "ocs: safe" in done.stdout
    assert json.loads(cli("switch", "show", "--format", "json").stdout)["links"] == []
    assert "nothing to recover" in cli("recover").stdout


def test_switching_by_hand_lasts_between_commands(cli):
    assert "up" in cli("switch", "connect", "host0.p0", "host1.p0").stdout
    shown = json.loads(cli("switch", "show", "--format", "json").stdout)
    assert shown["links"] == ["host0.p0-host1.p0"]
    assert "nothing was sent" in cli("switch", "connect", "host0.p0", "host1.p0").stdout
    status = json.loads(cli("status", "--format", "json").stdout)
    assert status["links"] == ["host0.p0-host1.p0"]
    assert "dBm" in cli("switch", "power").stdout
    assert "down" in cli("switch", "disconnect", "host0.p0", "host1.p0").stdout
    assert json.loads(cli("switch", "show", "--format", "json").stdout)["links"] == []
    done = cli("switch", "apply", "1>9", "1>10")
    assert done.returncode == 3
    assert "port 1 is used twice" in done.stderr


def test_power_by_hand_is_verified(cli):
    assert "off" in cli("power", "off", "host1").stdout
    states = json.loads(cli("power", "status", "--format", "json").stdout)
    assert states["backend"] == "mock"
    assert states["outlets"]["pdu.2"] == {"state": "off", "feeds": ["host1"]}
    assert "as it was" in cli("power", "off", "host1").stdout
    assert cli("power", "on", "host1").returncode == 0
    unknown = cli("power", "off", "hots1")
    assert unknown.returncode == 3
    assert "did you mean 'host1'" in unknown.stderr


def test_a_command_on_a_host(cli):
    assert cli("host", "run", "host0", "--", "hostname").stdout == "host0\n"
    assert cli("host", "run", "host0", "--", "no-such-program").returncode == 127


def test_runs_are_listed_compared_and_exported(cli, tmp_path):
    for seed in ("1", "2"):
        cli("run", FAILOVER, "--virtual-time", "--trials", "6", "--seed", seed)
    rows = json.loads(cli("results", "list", "--format", "json").stdout)
    assert len(rows) == 2
    names = [row["run"] for row in rows]
    compared = cli("results", "compare", *names, "--fail-if", "recovery.median > 1.5x")
    assert compared.returncode == 0, compared.stderr
    worse = cli("results", "compare", *names, "--fail-if", "recovery.median > 0.1x")
    assert worse.returncode == 1
    for kind in ("csv", "json", "junit", "chrome", "parquet"):
        target = tmp_path / f"out.{kind}"
        done = cli("results", "export", "latest", "--as", kind, "--output", str(target))
        assert done.returncode == 0, done.stderr
        assert target.stat().st_size > 0
    again = cli("results", "export", "latest", "--as", "csv", "--output", str(tmp_path / "out.csv"))
    assert again.returncode == 2
    assert "exists already" in again.stderr
    assert "2 runs" in cli("results", "rebuild").stdout


@pytest.mark.parametrize(
    "environment",
    [{"COLUMNS": "40"}, {"NO_COLOR": "1"}, {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}],
    ids=["narrow", "no-color", "ascii"],
)
def test_odd_terminals(cli, environment):
    for arguments in (
        ("run", FAILOVER, "--virtual-time", "--trials", "2"),
        ("results", "show", "latest"),
        ("plan", FAILOVER),
        ("run", "playbooks/no-such-file.yaml"),
    ):
        done = cli(*arguments, **environment)
        assert "Traceback" not in done.stderr, arguments
        assert done.returncode in (0, 2)


def test_results_that_cannot_be_written_are_the_users_fault(cli, tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    done = cli("run", FAILOVER, "--virtual-time", "--results", str(in_the_way))
    assert done.returncode == 2
    assert str(in_the_way) in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("rnu",), "run"),
        (("run",), "playbook"),
        (("run", FAILOVER, "--trials", "0"), "--trials"),
        (("run", FAILOVER, "--wait", "soon"), "--wait"),
        (("run", FAILOVER, "--set", "spare"), "name=value"),
        (("run", FAILOVER, "--set", "spar=host2"), "did you mean 'spare'"),
        (("run", FAILOVER, "--rack", "mokc"), "did you mean 'mock'"),
        (("run", FAILOVER, "--tags", "nothing"), "nothing"),
        (("switch", "connect", "host0", "host1.p0"), "host.interface"),
        (("results", "show", "no-such-run"), "no-such-run"),
        (("results", "compare", "one"), "two runs"),
    ],
)
def test_wrong_arguments_are_told_and_exit_2(cli, arguments, words):
    done = cli(*arguments)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_files_are_validated_and_schemas_printed(cli, tmp_path):
    assert "no faults" in cli("validate", FAILOVER, "playbooks/racks/rack16.yaml").stdout
    bad = tmp_path / "bad.yaml"
    bad.write_text("schema: testbed/v1\nname: bad\ntasks:\n\t- wait: 1 s\n")
    done = cli("validate", str(bad), "--format", "json")
    assert done.returncode == 2
    assert json.loads(done.stdout)[0]["line"] == 4
    for kind in ("playbook", "rack"):
        assert json.loads(cli("schema", kind).stdout)["type"] == "object"


def test_a_plan_touches_nothing(cli):
    plan = json.loads(cli("plan", FAILOVER, "--format", "json").stdout)
    assert "host3" in {device["name"] for device in plan["devices"]}
    assert not (cli.folder / "state").exists()


def test_a_closed_pipe_is_no_error(cli):
    running = cli.start("schema", "playbook")
    running.stdout.close()
    _, err = running.communicate()
    assert "Traceback" not in err
    assert "Exception" not in err


def test_one_trial_and_one_point_are_shown_alone(cli):
    cli("run", FAILOVER, "--virtual-time", "--trials", "3")
    show = ("results", "show", "latest", "--format", "json")
    trial = json.loads(cli(*show, "--trial", "2").stdout)
    assert trial["trial"] == 2
    assert trial["phases"]["detect"] > 0
    assert json.loads(cli(*show, "--point", "0").stdout)["trials"] == 3
    for arguments, words in (
        ((*show, "--trial", "9"), "no trial 9"),
        ((*show[:3], "--point", "9"), "no sweep point 9"),
    ):
        done = cli(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr


def test_junit_is_written_beside_the_run(cli, tmp_path):
    target = tmp_path / "junit.xml"
    done = cli("run", FAILOVER, "--virtual-time", "--trials", "2", "--junit", str(target))
    assert done.returncode == 0
    assert "recovery.p95" in target.read_text("utf-8")


def test_the_version_is_told(cli):
    assert cli("--version").stdout.startswith("testbed ")
