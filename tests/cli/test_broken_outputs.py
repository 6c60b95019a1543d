"""Outputs that end early, and Ctrl-C where nothing runs yet."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

FAILOVER = "playbooks/failover.yaml"
FULL = Path("/dev/full")


def without_a_reader(cli, *arguments, both=False):
    """As ``testbed … | true``, the reader gone before anything is written."""
    read, write = os.pipe()
    process = subprocess.Popen(
        cli.command(*arguments),
        cwd=Path(__file__).parents[2],
        env=cli.environment,
        stdout=write,
        stderr=write if both else subprocess.PIPE,
        text=True,
    )
    os.close(write)
    os.close(read)
    _, err = process.communicate(timeout=60)
    return process.returncode, err or ""


@pytest.mark.parametrize(
    "arguments", [("schema", "playbook"), ("--help",), ("devices",), ("plan", FAILOVER)]
)
def test_a_reader_that_goes_away_is_told_from_a_verdict(cli, arguments):
    """The code is not 1, which means that an expectation failed."""
    code, err = without_a_reader(cli, *arguments)
    assert (code, err) == (141, "")


@pytest.mark.parametrize(("fault", "verdict"), [("process-kill", 0), ("nonsense", 3)])
@pytest.mark.parametrize("both", [False, True], ids=["stdout", "stdout-and-stderr"])
def test_the_verdict_of_a_run_reaches_the_shell_without_a_reader(cli, fault, verdict, both):
    arguments = ("run", FAILOVER, "--virtual-time", "--trials", "2", "--set", f"fault={fault}")
    code, err = without_a_reader(cli, *arguments, both=both)
    assert code == verdict
    assert "Traceback" not in err
    shown = cli("results", "show", "latest", "--format", "json")
    assert shown.returncode == 0, shown.stderr


@pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("arguments", [("--version",), ("schema", "rack"), ("devices",)])
def test_a_full_disk_is_no_defect_of_ours(cli, arguments):
    with FULL.open("w") as full:
        done = subprocess.run(
            cli.command(*arguments),
            cwd=Path(__file__).parents[2],
            env=cli.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("store: the output cannot be written")
    assert len(done.stderr.splitlines()) == 1


def test_ctrl_c_while_libraries_are_imported_is_one_line(cli):
    """The signal comes from within the import of the commands, at every one of many moments."""
    code = (
        "import os, signal, sys, itertools\n"
        "import testbed.cli.main as entry\n"
        "left = int(sys.argv.pop(1))\n"
        "class Watch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        global left\n"
        "        left -= 1\n"
        "        if left == 0:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Watch())\n"
        "entry.main()\n"
    )
    for moment in (1, 2, 5, 20, 60):
        done = subprocess.run(
            [sys.executable, "-c", code, str(moment), "--help"],
            env=cli.environment,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n"), moment


def test_a_signal_that_is_ignored_on_purpose_stays_ignored(cli):
    """As for a job that a script starts in the background."""
    code = (
        "import signal, testbed.cli.main as entry\n"
        "with entry._leaving_at_once():\n"
        "    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        check=False,
    )
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "environment", "traceback"),
    [
        (("validate", "no-such.yaml", "--debug"), {}, False),
        (("--debug", "switch", "power", "nope"), {}, True),
        (("switch", "power", "nope", "--debug"), {}, True),
        (("switch", "power", "nope"), {"TESTBED_DEBUG": "1"}, True),
        (("switch", "power", "nope"), {"TESTBED_DEBUG": "0"}, False),
        (("switch", "power", "nope"), {}, False),
    ],
)
def test_debug_may_stand_anywhere(cli, arguments, environment, traceback):
    done = cli(*arguments, **environment)
    assert ("Traceback" in done.stderr) is traceback
    assert done.returncode != 0
    assert "No such option" not in done.stderr


def test_what_follows_two_dashes_is_not_ours(cli):
    done = cli("host", "run", "host0", "--", "no-such-program", "--debug")
    assert done.returncode == 127
    assert "Traceback" not in done.stderr
