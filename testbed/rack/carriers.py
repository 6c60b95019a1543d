"""Waiting for interfaces to see, or to lose, each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import trio

from testbed.errors import DeviceTimeout, TestbedError
from testbed.hal.capabilities import NicHost
from testbed.hal.together import settle
from testbed.hal.types import Carrier, NicState
from testbed.hal.wiring import Endpoint
from testbed.rack.circuits import Link
from testbed.timing.clock import now_s

LOOK_S = 2.0
"""Time for the look at an interface whose carrier did not come, in seconds."""


async def await_carrier(
    nic: NicHost, end: Endpoint, carrier: Carrier, *, within_s: float
) -> NicState:
    """Wait until one interface reports that carrier.

    :raises DeviceTimeout: with what was seen last there.
    """
    start_s = now_s()
    try:
        with trio.fail_after(within_s):
            return await nic.wait_carrier(end.interface, carrier)
    except trio.TooSlowError:
        seen = await _look(nic, end)
        raise DeviceTimeout(
            f"interface {end}: carrier not {carrier} within {within_s:g} s (last seen: {seen})",
            device=end.host,
            operation="wait_carrier",
            deadline_s=within_s,
            elapsed_s=now_s() - start_s,
            last_state=seen,
            remedy="look at its fibres and transceiver, and at the circuits of its ports",
        ) from None


async def await_links(
    links: Sequence[Link], nic_of: Callable[[str], NicHost | None], *, within_s: float
) -> float | None:
    """Wait, for all links in parallel, until both ends of each report a carrier.

    :param within_s: time for all of them, in seconds.
    :returns: when the last end did so, on :func:`testbed.timing.clock.now_s`; ``None`` when a
        host cannot tell the state of its interfaces, so that the instant is not known.
    :raises DeviceError: naming every end that failed, its link, and what was seen last there;
        of the kind of the worst: a host that is gone explains more than a missing carrier.
    """
    link_of = {end: link for link in links for end in link.ends}
    watched = {end: nic for end in link_of if (nic := nic_of(end.host)) is not None}
    _, errors = await settle(
        {
            end: partial(await_carrier, nic, end, Carrier.UP, within_s=within_s)
            for end, nic in watched.items()
        }
    )
    if not errors:
        return now_s() if watched and len(watched) == len(link_of) else None
    worst = min(errors.values(), key=lambda error: isinstance(error, DeviceTimeout))
    worst.message = "; ".join(
        f"link {link_of[end]} does not come up: {error.message}" for end, error in errors.items()
    )
    worst.fields.update(
        links=sorted({str(link_of[end]) for end in errors}), ends=[str(end) for end in errors]
    )
    raise worst


async def _look(nic: NicHost, end: Endpoint) -> str:
    """The state of an interface in words, for an error: whatever happens, there is an answer."""
    with trio.move_on_after(LOOK_S):
        try:
            states = await nic.interfaces()
        except TestbedError as error:
            return f"nothing: {error.message}"
        state = states.get(end.interface)
        return describe(state) if state else "no such interface"
    return f"nothing: {end.host} did not answer within {LOOK_S:g} s"


def describe(state: NicState) -> str:
    """The state of an interface in a few words."""
    words = ["enabled" if state.enabled else "disabled", f"carrier {state.carrier}"]
    if state.rx_power_dbm is not None:
        words.append(f"receives {state.rx_power_dbm:.1f} dBm")
    return ", ".join(words)
