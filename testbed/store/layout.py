"""Names of the files of a run's folder, and how one is replaced as a whole."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import StoreError

HEADER_FILE = "run.json"
EVENTS_FILE = "events.jsonl"
TRIALS_FILE = "trials.parquet"
ARTEFACTS_DIR = "artefacts"
INDEX_FILE = "index.sqlite"


@contextmanager
def replaced_whole(target: Path, *, overwrite: bool = True) -> Iterator[Path]:
    """A path beside ``target`` to write to; it takes the target's name when the block ends well,
    and vanishes when it does not, so that nobody ever sees half a file.

    :raises StoreError: when the target exists and must not be overwritten, or the disk refuses.
    """
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        if not overwrite and target.exists():
            raise already_there(target)
        yield draft
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        if overwrite:
            draft.replace(target)
        else:
            _move_to_free_name(draft, target)
    except OSError as error:
        raise StoreError(
            f"{target} cannot be written: {error.strerror or error}", path=str(target)
        ) from error
    finally:
        draft.unlink(missing_ok=True)


def _move_to_free_name(draft: Path, target: Path) -> None:
    try:
        target.hardlink_to(draft)  # fails when the name was taken meanwhile; rename would not
    except FileExistsError as error:
        raise already_there(target) from error
    except OSError:
        draft.replace(target)  # a file system without hard links


def already_there(target: Path) -> StoreError:
    """The error for a file that is there and was not to be overwritten."""
    return StoreError(
        f"{target} exists already",
        remedy="choose another name, or overwrite it with --force",
        path=str(target),
    )
