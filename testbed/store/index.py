"""The index of a results folder: one row a run in SQLite, so that many runs list at once.

It is a cache. The folders are the truth, and every listing first takes in what changed there:
runs that appeared, vanished or went on. An index that is missing, of another version or damaged
is made again. Transactions are short, in write-ahead mode with a busy timeout, and never open
while a run is written, so that a killed writer can leave no lock behind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.pool import NullPool

from testbed.errors import StoreError
from testbed.store.layout import EVENTS_FILE, HEADER_FILE, INDEX_FILE
from testbed.store.reader import RUNNING, UNFINISHED, StoredRun, open_run

LATEST = "latest"
UNREADABLE = "unreadable"
BUSY_TIMEOUT_S = 10.0
# Written into the file; raise it when the columns or the meaning of a row change.
_VERSION = 1
_CHANGING = (RUNNING, UNFINISHED, UNREADABLE)
_SHOWN_CANDIDATES = 5

Result = TypeVar("Result")

_runs = sa.Table(
    "runs",
    sa.MetaData(),
    sa.Column("run", sa.String, primary_key=True),
    sa.Column("wall", sa.String),
    sa.Column("playbook", sa.String, index=True),
    sa.Column("rack", sa.String),
    sa.Column("backend", sa.String),
    sa.Column("virtual", sa.Boolean),
    sa.Column("seed", sa.Integer),
    sa.Column("status", sa.String, index=True),
    sa.Column("exit_code", sa.Integer),
    sa.Column("trials", sa.Integer),
    sa.Column("failed", sa.Integer),
    sa.Column("measure", sa.String),
    sa.Column("unit", sa.String),
    sa.Column("median", sa.Float),
    sa.Column("error", sa.String),
)
_EMPTY_ROW: dict[str, Any] = dict.fromkeys(_runs.c.keys())
_DERIVED = ("measure", "unit", "median", "error")
_FROM_SUMMARY = tuple(name for name in _runs.c.keys() if name not in _DERIVED)  # noqa: SIM118


class RunIndex:
    """The runs of one results folder.

    :param results_dir: the folder; a missing one holds no runs.
    :param notice: told in one sentence when the index had to be made again.
    """

    def __init__(self, results_dir: Path, *, notice: Callable[[str], None] | None = None) -> None:
        self.results_dir = results_dir
        self._path = results_dir / INDEX_FILE
        self._notice = notice or logging.getLogger(__name__).warning
        self._engine = sa.create_engine(
            f"sqlite:///{self._path}",
            poolclass=NullPool,  # nothing stays open, and nothing is inherited by a child
            connect_args={"timeout": BUSY_TIMEOUT_S},
        )

    def add(self, run: StoredRun) -> None:
        """Add a run, or bring its row up to date."""
        self._whole(lambda: self._put([row_of(run)]))

    def list(
        self, limit: int | None = None, *, playbook: str | None = None, status: str | None = None
    ) -> list[dict[str, Any]]:
        """Rows of runs, the newest first.

        :param limit: at most so many; ``None`` = all.
        """
        query = sa.select(_runs).order_by(_runs.c.run.desc()).limit(limit)
        if playbook is not None:
            query = query.where(_runs.c.playbook == playbook)
        if status is not None:
            query = query.where(_runs.c.status == status)
        if not self.results_dir.is_dir():
            return []

        def select() -> list[dict[str, Any]]:
            self._take_in_changes()
            with self._transaction() as connection:
                return [dict(row) for row in connection.execute(query).mappings()]

        return self._whole(select)

    def find(self, reference: str) -> StoredRun:
        """One run: ``latest``, the path of its folder, its name, or a beginning of its name or
        of the part after the time that fits one run only.

        :raises StoreError: when no run fits, or several do.
        """
        if (Path(reference) / HEADER_FILE).is_file():
            return open_run(Path(reference))
        exact = self.results_dir / reference
        if Path(reference).name == reference and (exact / HEADER_FILE).is_file():
            return open_run(exact)
        names = sorted(self._names_on_disk(), reverse=True)
        if reference == LATEST:
            fitting = names[:1]
        else:
            fitting = [name for name in names if name.startswith(reference)] or [
                name for name in names if f"-{reference}" in name
            ]
        if not fitting or not reference:
            raise StoreError(
                f"no run {reference!r} in {self.results_dir}"
                + ("" if names else "; there are no runs"),
                remedy="see `testbed results list`" if names else "run a playbook first",
            )
        if len(fitting) > 1:
            shown = ", ".join(fitting[:_SHOWN_CANDIDATES])
            more = len(fitting) - _SHOWN_CANDIDATES
            raise StoreError(
                f"{reference!r} fits {len(fitting)} runs: {shown}"
                + (f" and {more} more" if more > 0 else ""),
                remedy="write more of the name",
                candidates=fitting,
            )
        return open_run(self.results_dir / fitting[0])

    def rebuild(self) -> int:
        """Make the index again from the folders; returns the number of runs."""
        self._discard()
        return self._whole(self._take_in_changes)

    def _take_in_changes(self) -> int:
        """Bring the rows in line with the folders; returns the number of runs."""
        on_disk = self._names_on_disk()
        with self._transaction() as connection:
            rows = connection.execute(sa.select(_runs.c.run, _runs.c.status))
            known = {row.run: row.status for row in rows}
        changed = sorted(name for name in on_disk if name not in known or known[name] in _CHANGING)
        gone = sorted(known.keys() - on_disk)
        # Runs are read outside any transaction: that takes time.
        fresh = [row for row in map(self._row_on_disk, changed) if row is not None]
        self._put(fresh)
        if gone:
            with self._transaction() as connection:
                connection.execute(
                    sa.delete(_runs).where(_runs.c.run == sa.bindparam("gone")),
                    [{"gone": name} for name in gone],
                )
        return len(on_disk) - (len(changed) - len(fresh))

    def _names_on_disk(self) -> set[str]:
        try:
            entries = list(self.results_dir.iterdir())
        except OSError:
            return set()
        # A folder of a run is known by its name's shape; asking each for run.json would cost a
        # system call a run.
        return {path.name for path in entries if path.name[:1].isalnum() and not path.suffix}

    def _row_on_disk(self, name: str) -> dict[str, Any] | None:
        """The row of a folder; ``None`` for one that never was a run."""
        try:
            return row_of(open_run(self.results_dir / name))
        except StoreError as error:
            if not (self.results_dir / name / EVENTS_FILE).is_file():
                return None
            return {**_EMPTY_ROW, "run": name, "status": UNREADABLE, "error": error.message}

    def _put(self, rows: Iterable[Mapping[str, Any]]) -> None:
        rows = list(rows)
        if not rows:
            return
        statement = insert(_runs)
        statement = statement.on_conflict_do_update(
            index_elements=[_runs.c.run],
            set_={c.name: statement.excluded[c.name] for c in _runs.c if not c.primary_key},
        )
        with self._transaction() as connection:
            connection.execute(statement, rows)

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        with self._engine.begin() as connection:
            self._prepare(connection)
            yield connection

    def _prepare(self, connection: sa.Connection) -> None:
        version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
        if version == _VERSION:
            return
        if version != 0:
            raise _OtherVersion(f"it has version {version}, this program writes {_VERSION}")
        connection.exec_driver_sql("PRAGMA journal_mode=WAL")
        _runs.metadata.create_all(connection)
        connection.exec_driver_sql(f"PRAGMA user_version={_VERSION}")

    def _whole(self, work: Callable[[], Result]) -> Result:
        """Do ``work``; when the index turns out to be damaged, make it again and do it once more.

        :raises StoreError: when the folder cannot be written, or another process is stuck in a
            transaction for longer than the busy timeout.
        """
        try:
            return work()
        except (sa.exc.DatabaseError, _OtherVersion) as error:
            if isinstance(error, sa.exc.OperationalError) and not _says_damage(error):
                raise self._refused(error) from error
            reason = str(getattr(error, "orig", error))
        self._notice(f"the index {self._path} cannot be used ({reason}); it is made again")
        try:
            self._discard()
            self._take_in_changes()
            return work()
        except (sa.exc.DatabaseError, OSError) as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> StoreError:
        return StoreError(
            f"the index {self._path} cannot be used: {getattr(error, 'orig', error)}",
            remedy="the runs are safe in their folders; `testbed results rebuild` makes the index",
            path=str(self._path),
        )

    def _discard(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)


def row_of(run: StoredRun) -> dict[str, Any]:
    """What the index says about a run; the figure is that of its first measure."""
    summary = run.summary()
    measure: str | None = next(iter(summary["measures"]), None)
    statistics = {} if measure is None else summary["measures"][measure]
    error = summary["error"]
    return {
        **{name: summary[name] for name in _FROM_SUMMARY},
        "measure": measure,
        "unit": statistics.get("unit"),
        "median": statistics.get("median"),
        "error": error.get("message") if isinstance(error, Mapping) else error,
    }


def _says_damage(error: sa.exc.OperationalError) -> bool:
    """Some damage comes as an operational error: tables or columns that are not there."""
    return "no such" in str(error.orig)


class _OtherVersion(Exception):
    """The index was written by another version of this program."""
