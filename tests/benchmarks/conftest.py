"""Prints the figures that the benchmarks state beside their times."""

from typing import Any

import pytest


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    session = getattr(config, "_benchmarksession", None)
    stated = [b for b in getattr(session, "benchmarks", ()) if b.extra_info]
    if stated:
        terminalreporter.section("figures")
    for bench in stated:
        for name, value in bench.extra_info.items():
            shown = f"{value:.4g}" if isinstance(value, float) else value
            terminalreporter.write_line(f"{bench.name}: {name} = {shown}")
