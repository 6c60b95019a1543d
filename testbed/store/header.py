"""What ``run.json`` says: everything that is known when a run starts, enough to repeat it."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.rack.rack import Rack
from testbed.timing.clock import WallAnchor
from testbed.timing.phases import RECOVERY_PHASES, START_MARK

if TYPE_CHECKING:
    from testbed.playbook.model import Playbook

SCHEMA = "testbed-run/v1"

# The distribution of this project, then the libraries that can change a result.
_DISTRIBUTIONS = ("optical-testbed", "trio", "numpy", "scipy", "pydantic", "jinja2")

# An allow-list: whatever else the environment holds may be a secret, and stays out.
_ENVIRONMENT = (
    "CI",
    "LANG",
    "LC_ALL",
    "OMP_NUM_THREADS",
    "PYTHONHASHSEED",
    "PYTHONPATH",
    "TERM",
    "TZ",
    "VIRTUAL_ENV",
)
_GIT_TIMEOUT_S = 5.0


def run_header(
    *,
    run_id: str,
    playbook: Playbook,
    rack: Rack,
    seed: int,
    virtual: bool,
    anchor: WallAnchor,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The content of ``run.json``.

    :param anchor: the wall time at which the run's own time was zero.
    :param options: further choices of the user that decide what was run, as tags.
    """
    return {
        "schema": SCHEMA,
        "run": run_id,
        "wall": anchor.wall.isoformat(),
        "backend": rack.backend_label,
        "seed": seed,
        "virtual": virtual,
        "options": dict(options or {}),
        "playbook": {
            "name": playbook.name,
            "source": playbook.source,
            "sha256": playbook.sha256,
            "text": playbook.text,
        },
        "rack": {**rack.describe(), "text": rack.text},
        "vars": dict(playbook.vars),
        "sweep": {name: list(values) for name, values in playbook.sweep.items()},
        "trials": playbook.trials,
        "warmup": playbook.warmup,
        "measures": {
            name: {
                "unit": measure.unit,
                **(
                    {"value": measure.value}
                    if measure.value is not None
                    else {"from": measure.start, "to": measure.end}
                ),
            }
            for name, measure in playbook.measures.items()
        },
        "phases": phase_descriptions(),
        "expect": [expectation.text for expectation in playbook.expect],
        "versions": versions(),
        "platform": platform_facts(),
        "git": git_commit(Path(playbook.source).resolve().parent),
        "environment": environment(os.environ),
    }


def phase_descriptions() -> list[dict[str, str]]:
    """The phases of a recovery as they were when the run was made."""
    starts = (START_MARK, *(phase.end_mark for phase in RECOVERY_PHASES))
    return [
        {"name": phase.name, "from": start, "to": phase.end_mark, "includes": phase.includes}
        for start, phase in zip(starts, RECOVERY_PHASES, strict=False)
    ]


def versions() -> dict[str, str]:
    """Versions of Python, of the testbed and of the libraries that can change a result."""
    found = {"python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue  # not installed, so it had no part in the run
    return found


def platform_facts() -> dict[str, Any]:
    """The machine of the controller."""
    return {
        "host": platform.node(),
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
    }


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that may be stored, by an allow-list: a secret cannot be among them."""
    return {name: variables[name] for name in _ENVIRONMENT if name in variables}


def git_commit(folder: Path) -> dict[str, Any] | None:
    """Commit of the checkout that ``folder`` is in, and whether files differ from it.

    ``None`` outside a checkout, before the first commit, or without git.
    """
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        answer = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    commit = answer.stdout.strip()
    return {"commit": commit.removesuffix("-dirty"), "dirty": commit.endswith("-dirty")}
