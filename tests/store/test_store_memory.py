"""Memory of the store does not grow with the trials of a run."""

import subprocess
import sys
from pathlib import Path

import pytest

STORE_AND_READ = """
import resource, sys
from pathlib import Path
from testbed.store.reader import open_run
from testbed.store.writer import RunWriter

writer = RunWriter.create(Path(sys.argv[1]), {"run": "one", "backend": "mock"})
phases = {f"phase{number}": 0.1 for number in range(8)}
for number in range(int(sys.argv[2])):
    frame = {"trial": number, "point": 0, "warmup": False}
    writer.append({"t": float(number), "kind": "trial.started", **frame})
    for _ in range(20):
        writer.append({"t": float(number), "kind": "log", "message": "x" * 100})
    writer.append({"t": number + 0.5, "kind": "trial.finished", **frame, "status": "passed",
                   "measures": {"recovery": 0.8}, "phases": phases, "error": None})
writer.finish({"status": "passed", "exit_code": 0, "error": None})
assert open_run(writer.folder).summary()["trials"] == int(sys.argv[2])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_mib(folder: Path, trials: int) -> float:
    command = [sys.executable, "-c", STORE_AND_READ, str(folder), str(trials)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(output) / 1024


@pytest.mark.slow
def test_20000_trials_take_no_more_than_their_figures(tmp_path: Path) -> None:
    """Ten names of 16 bytes a trial, pooled and by point, are 6 MiB; rows or events would be
    hundreds."""
    few = peak_mib(tmp_path / "few", 5_000)
    many = peak_mib(tmp_path / "many", 20_000)
    assert many - few < 25, (few, many)
