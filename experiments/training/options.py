"""Settings of the *simulated* program: how long things take, each with where its default is from.

A playbook may set them under ``options`` of ``job.start``. Sources: "gloo" = measured with
torch 2.13 and gloo on loopback, 3 to 5 runs each; "assumed" = ours, plausible, not measured.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from testbed.timing.distribution import Distribution
from testbed.timing.quantity import BitsPerSecond, Seconds


def _uniform(low_s: float, high_s: float) -> Distribution:
    return Distribution.model_validate({"kind": "uniform", "low": low_s, "high": high_s})


COMPUTE_S: Mapping[str, Distribution] = {
    # Assumed: a step short enough for many trials.
    "llama-nano": Distribution.lognormal(0.020, 0.05),
    # Assumed, from published step times of two hosts: 5.03 s on one link and 2.92 s on two,
    # less 3.95 s and 1.98 s of AllReduce, leave about 1 s.
    "llama-3.2-1b": Distribution.lognormal(1.0, 0.03),
}
"""Forward and backward pass of one rank in one step, per workload."""


class ProgramOptions(BaseModel):
    """Durations and rates of the simulated training program.

    :ivar start: interpreter, imports, CUDA context. gloo: ``import torch`` 1.3 to 1.8 s.
    :ivar load_rate: initial weights from local disk. Assumed: 2 GB/s NVMe.
    :ivar compute: of one rank in one step; default by model, :data:`COMPUTE_S`.
    :ivar hop_latency: of one message between neighbours of the ring. Assumed: TCP, 30 us.
    :ivar local_rate: between workers on one host. Assumed: 400 Gb/s.
    :ivar form_cold: first process group of a new process. gloo: init_process_group 89 to 549 ms,
        median 226 ms, dominated by skew.
    :ivar form_warm: a new group in place, in processes that had or awaited one. gloo: 1 to 4 ms.
    :ivar reset_seen: from a peer's death to the error in a survivor. gloo: 14 to 36 ms.
    :ivar storage_rate: of checkpoints, shared by all readers. Assumed: a file server on 10 Gb/s,
        beside the optical fabric.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    start: Distribution = _uniform(1.3, 1.8)
    load_rate: Annotated[BitsPerSecond, Field(gt=0)] = 16e9
    compute: Distribution | None = None
    hop_latency: Seconds = 30e-6
    local_rate: Annotated[BitsPerSecond, Field(gt=0)] = 400e9
    form_cold: Distribution = Distribution.lognormal(0.226, 0.5)
    form_warm: Distribution = _uniform(0.001, 0.004)
    reset_seen: Distribution = _uniform(0.014, 0.036)
    storage_rate: Annotated[BitsPerSecond, Field(gt=0)] = 10e9


def options_of(record: Mapping[str, Any]) -> ProgramOptions:
    """Read options as they came with the command line. :raises ValueError: for bad ones."""
    return _read(json.dumps(record, sort_keys=True))


@functools.lru_cache(maxsize=64)
def _read(text: str) -> ProgramOptions:
    return ProgramOptions.model_validate_json(text)
