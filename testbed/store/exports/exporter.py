"""How an export is declared, found and run.

A package adds a format with one object and one line::

    EXPORTER = Exporter("tsv", ".tsv", "Trials as tab-separated values.", write)

    [project.entry-points."testbed.exporters"]
    tsv = "my_package.tsv:EXPORTER"
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from testbed.errors import InternalError, StoreError
from testbed.store.layout import replaced_whole
from testbed.store.reader import StoredRun


@dataclass(frozen=True)
class Exporter:
    """One format.

    :param name: as given to ``--to``.
    :param suffix: of the file, with its dot.
    :param summary: one sentence for the help.
    :param write: writes the run to a path that does not exist yet.
    """

    name: str
    suffix: str
    summary: str
    write: Callable[[StoredRun, Path], None]


@functools.cache
def exporters() -> Mapping[str, Exporter]:
    """All installed formats by name. :raises InternalError: for a broken entry."""
    found: dict[str, Exporter] = {}
    for point in sorted(entry_points(group="testbed.exporters"), key=lambda p: p.name):
        try:
            exporter = point.load()
        except Exception as error:
            raise InternalError(
                f"the exporter {point.name!r} ({point.value}) cannot be loaded: {error}",
                remedy="reinstall or remove the package that provides it",
            ) from error
        if exporter.name in found:
            raise InternalError(f"two packages register the exporter {exporter.name!r}")
        found[exporter.name] = exporter
    return found


def export_run(
    run: StoredRun, name: str, target: Path | None = None, *, overwrite: bool = False
) -> Path:
    """Write a run in the format ``name``; returns the file.

    The file appears whole or not at all.

    :param target: a file, or a folder to put ``<run><suffix>`` in; the current folder by default.
    :raises StoreError: when there is no such format, the file exists and ``overwrite`` is not
        set, or it cannot be written.
    """
    exporter = exporters().get(name)
    if exporter is None:
        raise StoreError(
            f"no export {name!r}", remedy=f"choose one of {', '.join(exporters())}", format=name
        )
    path = Path() if target is None else target
    if path.is_dir():
        path = path / (run.id + exporter.suffix)
    with replaced_whole(path, overwrite=overwrite) as draft:
        exporter.write(run, draft)
    return path
