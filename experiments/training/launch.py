"""The command line of a worker: written by the controller, read by the program."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .job import JobSpec


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """What a worker is told when it is started; see :class:`experiments.training.job.JobSpec`.

    :param options: settings of the program itself.
    """

    job: str
    model: str
    slot: int
    heartbeat_s: float
    collective_timeout_s: float
    checkpoint_every: int
    options: Mapping[str, Any]


def argv_of(spec: JobSpec, slot: int) -> list[str]:
    """``[program, --settings, <JSON>]``: one argument, so that no shell can mangle it."""
    settings = LaunchSettings(
        job=spec.id,
        model=spec.model,
        slot=slot,
        heartbeat_s=spec.heartbeat_s,
        collective_timeout_s=spec.collective_timeout_s,
        checkpoint_every=spec.checkpoint_every,
        options=dict(spec.options),
    )
    return [spec.program, "--settings", json.dumps(asdict(settings), sort_keys=True)]


def settings_of(argv: Sequence[str]) -> LaunchSettings:
    """Read what :func:`argv_of` wrote. :raises ValueError: for any other arguments."""
    if len(argv) != 3 or argv[1] != "--settings":
        raise ValueError(f"usage: {argv[0] if argv else 'program'} --settings JSON")
    return _read(argv[2])


@functools.lru_cache(maxsize=64)  # the workers of a thousand trials are told the same
def _read(text: str) -> LaunchSettings:
    record = json.loads(text)
    try:
        return LaunchSettings(**record)
    except TypeError as error:
        raise ValueError(f"bad settings: {error}") from None
