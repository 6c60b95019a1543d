"""Brings back what dead runs have left behind: ``testbed recover``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.engine.interrupts import Interrupts
from testbed.engine.paths import rack_folder
from testbed.engine.safestate import Verdicts, make_safe
from testbed.engine.session import Claim, claim_rack, open_session
from testbed.errors import RackError
from testbed.rack.journal import DeviceChanges, DirtyRun, dirty_runs
from testbed.rack.rack import Rack
from testbed.timing.marks import EventSink, Timeline


@dataclass(frozen=True)
class RecoveryReport:
    """What was found and done.

    :ivar runs: the dead runs.
    :ivar devices: by device, ``None`` when it is safe now, else why it is not. Those that are
        not stay dirty.
    """

    runs: Sequence[DirtyRun] = ()
    devices: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def safe(self) -> tuple[str, ...]:
        return tuple(name for name, why in self.devices.items() if why is None)

    @property
    def unsafe(self) -> dict[str, str]:
        return {name: why for name, why in self.devices.items() if why is not None}

    def as_record(self) -> dict[str, Any]:
        """As JSON-compatible fields."""
        return {
            "runs": [{"run": run.run, "since": run.since} for run in self.runs],
            "safe": list(self.safe),
            "unsafe": self.unsafe,
        }


def dirty(rack: Rack, state_dir: Path) -> list[DirtyRun]:
    """Runs that have left devices of this rack behind, oldest first."""
    return dirty_runs(rack_folder(rack, state_dir))


async def recover(
    rack: Rack,
    state_dir: Path,
    *,
    wait_s: float = 0.0,
    interrupts: Interrupts | None = None,
    sink: EventSink | None = None,
) -> RecoveryReport:
    """Undo what dead runs had changed; see :mod:`testbed.engine.safestate` for what that means.

    Can be repeated: what could not be brought back stays dirty.

    :param wait_s: how long to wait for the lease, in seconds.
    :param sink: where events go.
    :raises LeaseError: when somebody uses the rack.
    """
    async with claim_rack(
        rack, owner="testbed recover", state_dir=state_dir, wait_s=wait_s
    ) as claim:
        return await _recover(claim, interrupts or Interrupts(), sink)


async def recover_claimed(claim: Claim, interrupts: Interrupts) -> None:
    """The same before a run, on a rack that is claimed already.

    :raises RackError: naming what could not be brought back.
    """
    report = await _recover(claim, interrupts, None)
    if report.unsafe:
        raise RackError(
            "the rack could not be brought back: "
            + "; ".join(f"{name}: {why}" for name, why in report.unsafe.items()),
            remedy="look at these devices, then try `testbed recover` again",
            devices=list(report.unsafe),
        )


def refuse_dirty(claim: Claim) -> None:
    """Refuse to run on a dirty rack. :raises RackError: naming devices, runs, and the way out."""
    devices = list(dict.fromkeys(name for run in claim.dirty for name in run.devices))
    runs = ", ".join(run.run for run in claim.dirty)
    raise RackError(
        f"rack {claim.rack.name} is dirty: {', '.join(devices)} may still be as {runs} left "
        + ("it" if len(devices) == 1 else "them"),
        remedy=f"bring it back with `testbed recover --rack {claim.rack.reference}`, or let the "
        "run do so first with --recover-first",
        devices=devices,
        runs=[run.run for run in claim.dirty],
    )


async def _recover(claim: Claim, interrupts: Interrupts, sink: EventSink | None) -> RecoveryReport:
    changes = _together(claim.dirty)
    known = {name: c for name, c in changes.items() if name in claim.rack.devices}
    verdicts: Verdicts = {
        name: "the rack file has no such device any more" for name in changes if name not in known
    }
    if known:
        async with open_session(
            claim, timeline=Timeline(sink or (lambda event: None)), run_id="recover"
        ) as session:
            # Devices are connected one by one, when they are used: one that cannot be must not
            # keep the others from being brought back.
            verdicts |= await make_safe(session, known, interrupts)
            for name in list(session.journal.changes):
                # What it did is not more than what the dead runs' journals say already.
                session.journal.settle(name)
    for run in claim.dirty:
        if all(verdicts[name] is None for name in run.devices):
            run.forget()
    return RecoveryReport(claim.dirty, verdicts)


def _together(runs: Sequence[DirtyRun]) -> dict[str, DeviceChanges]:
    """What several runs have changed; what was before the first of them counts."""
    merged: dict[str, DeviceChanges] = {}
    for run in runs:
        for name, changes in run.changes.items():
            into = merged.setdefault(name, DeviceChanges())
            for operation in changes.operations:
                into.add(operation, {})
            into.add(changes.operations[0], changes.before)
    return merged
