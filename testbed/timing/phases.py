"""The phases of a recovery, each from a mark to a mark (DESIGN section 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.timing.marks import Timeline


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the recovery, from the mark that ends the phase before to its own mark."""

    name: str
    end_mark: str
    includes: str


START_MARK = "fault.injected"
RECOVERY_PHASES: tuple[Phase, ...] = (
    Phase(
        "detect", "fault.detected", "from the injection until a detector has told the controller"
    ),
    Phase("decide", "failover.decided", "choice of the spare and computation of the circuits"),
    Phase("program", "fabric.acknowledged", "commands sent until the switches acknowledged"),
    Phase("light", "fabric.verified", "until light is seen and the circuits are read back"),
    Phase("link-up", "fabric.link-up", "until the interfaces at both ends report a carrier"),
    Phase("regroup", "job.regrouped", "until the process group of the new slice is ready"),
    Phase("restore", "job.restored", "until the replaced worker holds model and optimizer state"),
    Phase("first-step", "job.first-good-step", "until the first step of the new slice is finished"),
)


def phase_durations_s(timeline: Timeline) -> dict[str, float | None]:
    """Duration of each phase of this trial in seconds.

    A phase whose mark is missing, or came before that of the phase before (phases may overlap:
    light and process group can be made at the same time), is ``None`` or zero: it took no time
    *of its own*, so that the phases always add up to the recovery.
    """
    start = timeline.find(START_MARK)
    durations: dict[str, float | None] = {}
    if start is None:
        return durations
    reached_s = start.t_s
    for phase in RECOVERY_PHASES:
        mark = timeline.find(phase.end_mark, after_s=start.t_s)
        if mark is None:
            durations[phase.name] = None
            continue
        durations[phase.name] = max(0.0, mark.t_s - reached_s)
        reached_s = max(reached_s, mark.t_s)
    return durations


def phase_names() -> Sequence[str]:
    """Names of the phases in their order."""
    return tuple(phase.name for phase in RECOVERY_PHASES)
