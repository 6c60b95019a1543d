"""Benchmark: `testbed validate` of a playbook with 1,000 tasks ; the goal is one second."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.playbook.loader import load_playbook

TASKS = 1000


@pytest.fixture
def playbook(tmp_path: Path) -> Path:
    """A thousand tasks of all sorts: fixed arguments, variables, results, conditions."""
    lines = ["schema: testbed/v1", "name: big", "vars: {victim: host1, pause: 1 s}", "tasks:"]
    for n in range(TASKS // 4):
        lines += [
            f"  - name: wire {n}",
            "    fabric.connect: {ring: [host0, host1, host2]}",
            '  - wait: "{{ pause }}"',
            f"    when: {n} >= 0",
            '  - host.health: "{{ victim }}"',
            f"    register: health{n}",
            f'  - assert: "{{{{ health{n}.uptime_s > {n} }}}}"',
        ]
    path = tmp_path / "big.yaml"
    path.write_text("\n".join(lines))
    return path


def test_loading_a_thousand_tasks(benchmark: Any, playbook: Path) -> None:
    loaded, _ = benchmark(load_playbook, playbook)
    assert len(loaded.tasks) == TASKS


def test_a_fresh_process_included(benchmark: Any, playbook: Path, tmp_path: Path) -> None:
    """With the start of the interpreter and all imports, as a user waits for it."""
    code = "from testbed.cli.main import main; main()"
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed: compiled once, not each time

    def validate() -> None:
        subprocess.run(
            [sys.executable, "-c", code, "validate", str(playbook)], check=True, env=environment
        )

    benchmark.pedantic(validate, rounds=5, warmup_rounds=1)
