"""Files with the mistakes that people make, each with the exact message that it must give.

A new case is a YAML file; its message is written by ``UPDATE_GOLDEN=1 pytest tests/broken``
and then read, by a person, before it is committed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.errors import EXIT_USER
from testbed.playbook.loader import load_playbook
from testbed.rack.loader import load_rack
from testbed.source.places import FileFaults

HERE = Path(__file__).parent
PLAYBOOKS = sorted((HERE / "playbooks").glob("*.yaml"))
RACKS = sorted((HERE / "racks").glob("*.yaml"))


def _message(path: Path) -> str:
    with pytest.raises(FileFaults) as caught:
        if path.parent.name == "racks":
            load_rack(path.name)
        else:
            load_playbook(path.name)
    assert caught.value.exit_code == EXIT_USER
    return f"{caught.value}\n"


@pytest.mark.parametrize("path", [*PLAYBOOKS, *RACKS], ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_message(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TC43, TC44, TC45, TC46, TC48, TC49, TC53, TC83: see the names of the files."""
    monkeypatch.chdir(path.parent)
    golden = path.with_suffix(".txt")
    message = _message(path)
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(message, "utf-8")
    assert message == golden.read_text("utf-8")


def test_every_fault_has_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """No message is without file, line and column, and no line is outside the file."""
    for path in (*PLAYBOOKS, *RACKS):
        monkeypatch.chdir(path.parent)
        lines = len(path.read_text().splitlines())
        with pytest.raises(FileFaults) as caught:
            load_rack(path.name) if path in RACKS else load_playbook(path.name)
        for fault in caught.value.diagnostics:
            assert fault.place.file == path.name
            assert 1 <= fault.place.line <= lines + 1
            assert fault.place.column >= 1


def test_there_are_enough_of_them() -> None:
    assert len(PLAYBOOKS) + len(RACKS) >= 40
