"""What a run says about itself: enough to repeat it, and no secret."""

import datetime
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import EXIT_INTERRUPTED
from testbed.hal.wiring import Wiring
from testbed.playbook.model import Expectation, MeasureSpec, Playbook
from testbed.rack.rack import Rack, SafeState
from testbed.source.places import Place
from testbed.store.exports import export_run, exporters
from testbed.store.header import environment, git_commit, run_header
from testbed.store.reader import open_run
from testbed.store.writer import RunWriter
from testbed.timing.clock import WallAnchor

CANARY = "s3cr3t-canary"
PLACE = Place("failover.yaml", 1, 1)


@pytest.fixture
def header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for name in ("PDU_PASSWORD", "TESTBED_TOKEN", "SSH_AUTH_SOCK"):
        monkeypatch.setenv(name, CANARY)
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    playbook = Playbook(
        name="failover",
        source=str(tmp_path / "failover.yaml"),
        text="name: failover\n",
        sha256="aa",
        rack="bench",
        vars={"victim": "host1"},
        sweep={"policy": ("lumion", "restart")},
        trials=10,
        warmup=1,
        measures={
            "recovery": MeasureSpec("recovery", PLACE, start="fault.injected", end="job.restored"),
            "rate": MeasureSpec("rate", PLACE, value="{{ flow.rate }}", unit="b/s"),
        },
        expect=(Expectation("recovery.p95 < 1 s", PLACE, "recovery", "p95", "<", 1.0),),
    )
    rack = Rack("bench", "bench.yaml", "name: bench\n", "bb", {}, Wiring(()), SafeState())
    return run_header(
        run_id="one",
        playbook=playbook,
        rack=rack,
        seed=7,
        virtual=True,
        anchor=WallAnchor(datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC), 5.0),
        options={"tags": ["quick"]},
    )


def test_the_header_tells_what_is_needed_to_repeat_the_run(header: dict[str, Any]) -> None:
    assert header["playbook"]["text"] == "name: failover\n"
    assert header["playbook"]["sha256"] == "aa"
    assert (header["rack"]["text"], header["rack"]["sha256"]) == ("name: bench\n", "bb")
    assert (header["seed"], header["virtual"], header["wall"]) == (
        7,
        True,
        "2026-12-01T00:00:00+00:00",
    )
    assert (header["trials"], header["warmup"]) == (10, 1)
    assert header["vars"] == {"victim": "host1"}
    assert header["sweep"] == {"policy": ["lumion", "restart"]}
    assert header["expect"] == ["recovery.p95 < 1 s"]
    assert header["options"] == {"tags": ["quick"]}
    assert {"python", "optical-testbed", "trio", "numpy"} <= header["versions"].keys()


def test_measures_and_phases_say_from_where_to_where(header: dict[str, Any]) -> None:
    assert header["measures"]["recovery"] == {
        "unit": "s",
        "from": "fault.injected",
        "to": "job.restored",
    }
    assert header["measures"]["rate"] == {"unit": "b/s", "value": "{{ flow.rate }}"}
    assert header["phases"][0]["from"] == "fault.injected"
    for earlier, later in zip(header["phases"], header["phases"][1:], strict=False):
        assert earlier["to"] == later["from"]
    assert header["phases"][-1]["to"] == "job.first-good-step"


def test_no_secret_of_the_environment_reaches_any_file(
    header: dict[str, Any], tmp_path: Path
) -> None:
    """TC76: only variables on the allow-list are stored."""
    assert header["environment"]["PYTHONHASHSEED"] == "0"
    writer = RunWriter.create(tmp_path / "results", header)
    writer.finish({"status": "interrupted", "exit_code": EXIT_INTERRUPTED, "error": None})
    run = open_run(writer.folder)
    for name in exporters():
        export_run(run, name, tmp_path / "results")
    files = [path for path in (tmp_path / "results").rglob("*") if path.is_file()]
    assert len(files) >= 8
    for path in files:
        assert CANARY.encode() not in path.read_bytes(), path


def test_the_environment_is_an_allow_list() -> None:
    assert environment({"TZ": "UTC", "AWS_SECRET": "x", "HOME": "/h"}) == {"TZ": "UTC"}


def git(folder: Path, *command: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *command], cwd=folder, check=True, capture_output=True)


def test_the_commit_is_told_and_whether_files_differ_from_it(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    assert git_commit(tmp_path) is None  # there is no commit yet
    (tmp_path / "a.yaml").write_text("a")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "a")
    clean = git_commit(tmp_path)
    assert clean is not None
    assert len(clean["commit"]) == 40
    assert clean["dirty"] is False
    (tmp_path / "a.yaml").write_text("b")
    assert git_commit(tmp_path) == {"commit": clean["commit"], "dirty": True}


def test_without_a_checkout_or_git_there_is_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert git_commit(tmp_path) is None
    monkeypatch.setenv("PATH", "")
    assert git_commit(tmp_path) is None


def test_the_header_is_stored_as_it_is(
    header: dict[str, Any], tmp_path: Path, begin: Callable[..., RunWriter]
) -> None:
    writer = RunWriter.create(tmp_path / "results", header)
    assert json.loads((writer.folder / "run.json").read_text("utf-8")) == header
    writer.close()
