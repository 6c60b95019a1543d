"""Verified power switching of outlets, once for all power controllers.

A relay may follow its command late, or not at all: an acknowledgement is no measurement.
Switching ends when a read-back *that was asked for after the acknowledgement* shows the state;
the time from one to the other is the settle time of the outlet. Nothing sleeps for a fixed time
in the hope that it is enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import trio

from testbed.errors import DeviceRefused, StateMismatch
from testbed.hal.capabilities import PowerController
from testbed.hal.types import OutletState
from testbed.timing.clock import now_s

POLL_S = 0.05
"""Pause between two read-backs, in seconds."""


@dataclass(frozen=True, slots=True)
class PowerReport:
    """Instants of a verified switching, on :func:`testbed.timing.clock.now_s`.

    :param commanded: outlets that were commanded; the others were in that state already.
    """

    outlets: tuple[str, ...]
    state: OutletState
    sent_s: float
    acknowledged_s: float
    verified_s: float
    commanded: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.commanded)

    @property
    def settle_s(self) -> float:
        """From the last acknowledgement to the read-back of the last outlet, in seconds."""
        return self.verified_s - self.acknowledged_s


async def switch_verified(
    controller: PowerController,
    outlets: Sequence[str],
    state: OutletState,
    *,
    verify_s: float = 10.0,
    force: bool = False,
) -> PowerReport:
    """Switch outlets of one controller and wait until each reads back as asked.

    :param verify_s: time for the read-back to agree, after the last acknowledgement.
    :param force: command also those outlets that read as asked already. The reading may be
        from before, so a sequence (off, then on) must not be built on it.
    :raises DeviceRefused: for an unknown outlet; nothing was switched.
    :raises StateMismatch: when an outlet does not follow, naming it.
    """
    before = await controller.outlets()
    require_outlets(controller.name, before, outlets)
    pending = [outlet for outlet in outlets if force or before[outlet] is not state]
    sent_s = now_s()
    for outlet in pending:
        await controller.switch(outlet, state)
    acknowledged_s = now_s()
    while True:
        seen = await controller.outlets() if pending else before
        wrong = [outlet for outlet in outlets if seen.get(outlet) is not state]
        if not wrong:
            return PowerReport(
                tuple(outlets), state, sent_s, acknowledged_s, now_s(), tuple(pending)
            )
        left_s = acknowledged_s + verify_s - now_s()
        if left_s <= 0:
            readings = ", ".join(f"{o} reads {seen.get(o, 'nothing')}" for o in wrong)
            raise StateMismatch(
                f"power controller {controller.name}: outlet {readings} {verify_s:g} s after "
                f"{state} was acknowledged",
                device=controller.name,
                operation="switch",
                deadline_s=verify_s,
                elapsed_s=now_s() - sent_s,
                last_state=", ".join(f"{o}={seen.get(o, 'unknown')}" for o in outlets),
                remedy="look at the outlet itself; its relay or its read-back is at fault",
                outlets=wrong,
            )
        await trio.sleep(min(POLL_S, left_s))


async def cycle_verified(
    controller: PowerController,
    outlets: Sequence[str],
    *,
    pause_s: float = 5.0,
    verify_s: float = 10.0,
) -> tuple[PowerReport, PowerReport]:
    """Off, verified off, pause, on, verified on: the outlets of one controller together.

    Both halves are commanded whatever the outlets read before. The pause is ours, not the
    controller's own: it counts from *verified off* of the last outlet to the command *on*.
    """
    off = await switch_verified(controller, outlets, OutletState.OFF, verify_s=verify_s, force=True)
    await trio.sleep(pause_s)
    on = await switch_verified(controller, outlets, OutletState.ON, verify_s=verify_s, force=True)
    return off, on


def require_outlets(name: str, known: Mapping[str, OutletState], outlets: Sequence[str]) -> None:
    """Refuse outlets that a controller does not have. :raises DeviceRefused: naming them."""
    unknown = [outlet for outlet in outlets if outlet not in known]
    if unknown:
        raise DeviceRefused(
            f"power controller {name} has no outlet {', '.join(unknown)}; nothing was switched",
            device=name,
            operation="switch",
            remedy=f"its outlets are {', '.join(known)}",
            outlets=unknown,
        )
