"""How fast ``testbed --help`` is, beside what Python, typer and rich cost alone.

The goal: at most twice as long as ``python -c "import typer, rich"``, measured in the same run.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

ROUNDS = 15


def seconds(*command: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def test_help_beside_the_imports_alone(benchmark: Any) -> None:
    """Taken in turns, so that both meet the same machine."""
    alone: list[float] = []
    helped: list[float] = []

    def pair() -> None:
        alone.append(seconds("-c", "import typer, rich"))
        helped.append(seconds("-c", "from testbed.cli.main import main; main()", "--help"))

    benchmark.pedantic(pair, rounds=ROUNDS, warmup_rounds=1)
    benchmark.extra_info["imports_ms"] = 1e3 * sorted(alone)[ROUNDS // 2]
    benchmark.extra_info["help_ms"] = 1e3 * sorted(helped)[ROUNDS // 2]
    benchmark.extra_info["ratio"] = sorted(helped)[ROUNDS // 2] / sorted(alone)[ROUNDS // 2]
