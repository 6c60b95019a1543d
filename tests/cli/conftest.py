"""The command line as a person uses it: in a process of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class CommandLine:
    """Runs ``testbed`` with a state and a results folder of this test."""

    def __init__(self, folder):
        self.folder = folder
        self.results = folder / "results"
        self.environment = {
            **os.environ,
            "TESTBED_STATE_DIR": str(folder / "state"),
            "TESTBED_RESULTS": str(self.results),
            "COLUMNS": "100",
        }

    def __call__(self, *arguments, **environment):
        return subprocess.run(
            self.command(*arguments),
            cwd=ROOT,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def start(self, *arguments):
        return subprocess.Popen(
            self.command(*arguments),
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    @staticmethod
    def command(*arguments):
        return [sys.executable, "-c", "from testbed.cli.main import main; main()", *arguments]


@pytest.fixture
def cli(tmp_path):
    return CommandLine(tmp_path)
