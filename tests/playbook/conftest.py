"""Playbooks out of texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.playbook.loader import load_playbook
from testbed.playbook.model import Playbook
from testbed.rack.rack import Rack
from testbed.source.places import FileFaults

HEAD = "schema: testbed/v1\nname: test\n"
Load = Callable[..., tuple[Playbook, Rack]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a playbook from its text, without the two lines that all have."""

    def load_text(text: str, **options: Any) -> tuple[Playbook, Rack]:
        path = tmp_path / "playbook.yaml"
        path.write_text(HEAD + text, "utf-8")
        return load_playbook(path, **options)

    return load_text


@pytest.fixture
def faults(load: Load) -> Callable[..., str]:
    """The message that a faulty playbook gives."""

    def faults_of(text: str, **options: Any) -> str:
        with pytest.raises(FileFaults) as caught:
            load(text, **options)
        return str(caught.value)

    return faults_of
