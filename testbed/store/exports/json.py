"""A run as one JSON document: its header, its summary and all its trials."""

from __future__ import annotations

from pathlib import Path

from testbed.store.encoding import compact_json
from testbed.store.exports.exporter import Exporter
from testbed.store.reader import StoredRun


def write(run: StoredRun, path: Path) -> None:
    """Write the document, one trial a line, without holding all trials in memory."""
    with path.open("w", encoding="utf-8") as file:
        file.write(f'{{"header": {compact_json(run.header)},\n')
        file.write(f'"summary": {compact_json(run.summary())},\n"trials": [')
        for number, row in enumerate(run.trials()):
            file.write((",\n" if number else "\n") + compact_json(row))
        file.write("\n]}\n")


EXPORTER = Exporter("json", ".json", "Header, summary and trials as one JSON document.", write)
