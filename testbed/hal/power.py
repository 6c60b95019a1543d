"""Verified power switching, once for all power controllers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import trio

from testbed.errors import DeviceRefused, StateMismatch
from testbed.hal.capabilities import PowerController
from testbed.hal.types import OutletState
from testbed.timing.clock import now_s

POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class PowerReport:
    """Instants of a verified switching, on :func:`testbed.timing.clock.now_s`."""

    outlets: tuple[str, ...]
    state: OutletState
    sent_s: float
    acknowledged_s: float
    verified_s: float
    changed: bool


async def switch_verified(
    controller: PowerController,
    outlets: Sequence[str],
    state: OutletState,
    *,
    verify_s: float = 10.0,
) -> PowerReport:
    """Switch outlets and wait until each reads back as asked.

    Outlets that are in that state already are not commanded.

    :param verify_s: time for the read-back to agree, after the last acknowledgement.
    :raises StateMismatch: when an outlet does not follow, naming it.
    """
    before = await controller.outlets()
    _require(controller.name, before, outlets)
    pending = [outlet for outlet in outlets if before[outlet] is not state]
    sent_s = now_s()
    for outlet in pending:
        await controller.switch(outlet, state)
    acknowledged_s = now_s()
    while True:
        seen = await controller.outlets() if pending else before
        wrong = [outlet for outlet in outlets if seen[outlet] is not state]
        if not wrong:
            return PowerReport(
                tuple(outlets), state, sent_s, acknowledged_s, now_s(), bool(pending)
            )
        if now_s() - acknowledged_s > verify_s:
            raise StateMismatch(
                f"power controller {controller.name}: outlet {', '.join(wrong)} still reads "
                f"{seen[wrong[0]]} {verify_s:g} s after {state} was acknowledged",
                device=controller.name,
                operation="switch",
                deadline_s=verify_s,
                elapsed_s=now_s() - sent_s,
                last_state=", ".join(f"{o}={seen[o]}" for o in outlets),
                remedy="look at the outlet itself; its relay or its read-back is at fault",
            )
        await trio.sleep(POLL_S)


async def cycle_verified(
    controller: PowerController,
    outlets: Sequence[str],
    *,
    pause_s: float = 5.0,
    verify_s: float = 10.0,
) -> tuple[PowerReport, PowerReport]:
    """Off, verified off, pause, on, verified on. The pause counts from *verified off*.

    All outlets are off together during the pause, so that a host with two feeds loses power.
    """
    off = await switch_verified(controller, outlets, OutletState.OFF, verify_s=verify_s)
    await trio.sleep(pause_s)
    on = await switch_verified(controller, outlets, OutletState.ON, verify_s=verify_s)
    return off, on


def _require(name: str, known: Mapping[str, OutletState], outlets: Sequence[str]) -> None:
    unknown = [outlet for outlet in outlets if outlet not in known]
    if unknown:
        raise DeviceRefused(
            f"power controller {name} has no outlet {', '.join(unknown)}; nothing was switched",
            device=name,
            operation="switch",
            remedy=f"its outlets are {', '.join(known)}",
        )
