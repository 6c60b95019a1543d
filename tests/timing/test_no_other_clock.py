"""Nothing outside ``testbed.timing`` reads a clock."""

import ast
from pathlib import Path

import devices
import experiments
import testbed

CLOCKS = {"time", "datetime"}


def modules():
    for package in (testbed, devices, experiments):
        root = Path(package.__file__).parent
        for path in sorted(root.rglob("*.py")):
            if "timing" not in path.relative_to(root).parts[:1]:
                yield path


def imported(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").split(".")[0]


def test_only_the_timing_package_imports_a_clock():
    """TC63, TC64: durations by the wall clock, and clocks patched from outside. There is one
    clock, it is handed in by the event loop, and nobody else can read another."""
    found = {str(path) for path in modules() if CLOCKS & set(imported(path))}
    assert not found
