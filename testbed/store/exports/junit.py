"""A run as JUnit XML, for the test pages of CI systems.

Each trial and each expectation is a test case. A trial that failed, was interrupted or was cut
off is an error of the run; an expectation that was not met is a failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.sax.saxutils import XMLGenerator

from testbed.store.exports.exporter import Exporter
from testbed.store.reader import StoredRun
from testbed.store.summary import PASSED
from testbed.store.trials import TrialRow

# XML 1.0 has no way to write these characters at all, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(run: StoredRun, path: Path) -> None:
    """Write the suite of a run."""
    expectations, _ = run.closing_events()
    trials = errors = 0
    seconds = 0.0
    for row in run.trials():
        trials += 1
        errors += row["status"] != PASSED
        seconds += row["elapsed_s"] or 0.0
    failures = sum(not event.get("passed") for event in expectations)
    with path.open("w", encoding="utf-8") as file:
        document = _Document(file)
        suite = {
            "name": run.playbook or run.id,
            "tests": str(trials + len(expectations)),
            "errors": str(errors),
            "failures": str(failures),
            "skipped": "0",
            "time": f"{seconds:.6f}",
        }
        if run.header.get("wall"):
            suite["timestamp"] = str(run.header["wall"])
        with document.element("testsuites"), document.element("testsuite", suite):
            with document.element("properties"):
                for name, value in _properties(run).items():
                    document.empty("property", {"name": name, "value": str(value)})
            for row in run.trials():
                _write_trial(document, run, row)
            for event in expectations:
                _write_expectation(document, run, event)


def _properties(run: StoredRun) -> dict[str, Any]:
    return {
        "run": run.id,
        "status": run.status,
        "backend": run.backend,
        "rack": run.rack,
        "seed": run.header.get("seed"),
        "virtual": run.virtual,
    }


def _write_trial(document: _Document, run: StoredRun, row: TrialRow) -> None:
    variables = ", ".join(f"{name}={value}" for name, value in row["vars"].items())
    case = {
        "classname": run.playbook + (f"[{variables}]" if variables else ""),
        "name": f"{'warm-up trial' if row['warmup'] else 'trial'} {row['trial']}",
        "time": f"{row['elapsed_s'] or 0.0:.6f}",
    }
    with document.element("testcase", case):
        if row["status"] != PASSED:
            error = row["error"]
            record = error if isinstance(error, dict) else {"message": error or row["status"]}
            attributes = {
                "type": str(record.get("kind", row["status"])),
                "message": str(record.get("message", row["status"])),
            }
            document.empty("error", attributes)


def _write_expectation(document: _Document, run: StoredRun, event: dict[str, Any]) -> None:
    name = str(event.get("text"))
    if event.get("point") is not None:
        name += f" (point {event['point']})"
    with document.element("testcase", {"classname": f"{run.playbook}.expectations", "name": name}):
        if not event.get("passed"):
            message = f"value {event.get('value')}, limit {event.get('limit')}"
            document.empty("failure", {"type": "expectation", "message": message})


class _Document:
    """XML written as it comes, so that many trials need no memory."""

    def __init__(self, file: Any) -> None:
        self._xml = XMLGenerator(file, encoding="utf-8", short_empty_elements=True)
        self._xml.startDocument()

    @contextmanager
    def element(self, name: str, attributes: dict[str, str] | None = None) -> Iterator[None]:
        clean = {key: _FORBIDDEN.sub("\ufffd", text) for key, text in (attributes or {}).items()}
        self._xml.startElement(name, clean)  # type: ignore[arg-type]  # any mapping will do
        yield
        self._xml.endElement(name)
        self._xml.ignorableWhitespace("\n")

    def empty(self, name: str, attributes: dict[str, str]) -> None:
        with self.element(name, attributes):
            pass


EXPORTER = Exporter("junit", ".xml", "Trials and expectations as JUnit XML, for CI.", write)
