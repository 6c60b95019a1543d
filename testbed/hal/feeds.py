"""Verified power switching over several controllers: a host with redundant feeds is one thing.

A host runs while any of its feeds is on, so it is off only when all are, and switching one feed
of two changes nothing but the redundancy. Hence:

* every controller is read before any is commanded: an unreachable feed fails the operation, by
  name, with nothing switched;
* controllers are commanded in parallel;
* when one fails after all, the outlets of the others are put back to what they read before, so
  that a host does not lose its redundancy unseen. The ``on`` half of a cycle is the exception:
  there a feed that came on stays on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import trio

from testbed.errors import TestbedError
from testbed.hal.capabilities import PowerController
from testbed.hal.power import PowerReport, require_outlets, switch_verified
from testbed.hal.together import settle
from testbed.hal.types import OutletState
from testbed.hal.wiring import OutletRef
from testbed.timing.clock import now_s

PUT_BACK_S = 10.0
"""Time for putting outlets back after a failure, in seconds."""

ControllerOf = Callable[[str], PowerController]


@dataclass(frozen=True, slots=True)
class FeedsReport:
    """A verified switching of outlets on one or more controllers.

    :param controllers: the report of each controller.
    :param sent_s: the first command, on :func:`testbed.timing.clock.now_s`.
    :param verified_s: the read-back of the last outlet.
    """

    state: OutletState
    controllers: Mapping[str, PowerReport]
    sent_s: float
    verified_s: float

    @property
    def changed(self) -> bool:
        return any(report.changed for report in self.controllers.values())

    @property
    def settle_s(self) -> float:
        """The longest settle time of a controller, in seconds."""
        return max((r.settle_s for r in self.controllers.values()), default=0.0)


async def read_feeds(
    feeds: Sequence[OutletRef], controller_of: ControllerOf
) -> dict[OutletRef, OutletState]:
    """States of outlets, controllers read in parallel.

    :raises DeviceError: of the first controller that fails, with the names of all its feeds.
    """
    grouped = _grouped(feeds)
    seen, errors = await settle({name: controller_of(name).outlets for name in grouped})
    if errors:
        raise _named(errors, feeds, "nothing was switched")
    for name, outlets in grouped.items():
        require_outlets(name, seen[name], outlets)
    return {feed: seen[feed.controller][feed.outlet] for feed in feeds}


async def switch_feeds(
    feeds: Sequence[OutletRef],
    state: OutletState,
    controller_of: ControllerOf,
    *,
    verify_s: float = 10.0,
    force: bool = False,
    put_back: bool = True,
) -> FeedsReport:
    """Switch all feeds and wait until each reads back as asked.

    :param verify_s: time for each controller's read-back to agree after its acknowledgement.
    :param force: command also what reads as asked already.
    :param put_back: put back what changed when a controller fails.
    :raises DeviceError: naming the feed that failed and what became of the others.
    """
    before = await read_feeds(feeds, controller_of)
    return await _switch_all(
        feeds, state, controller_of, before if put_back else {}, verify_s=verify_s, force=force
    )


async def cycle_feeds(
    feeds: Sequence[OutletRef],
    controller_of: ControllerOf,
    *,
    pause_s: float = 5.0,
    verify_s: float = 10.0,
) -> tuple[FeedsReport, FeedsReport]:
    """Off, all verified off, pause, on, all verified on.

    The pause counts from *verified off* of the last feed on any controller, so that the host
    is without power for that long at least. Both halves are commanded whatever is read before,
    and each is verified by readings that were asked for after its own command.
    """
    off = await switch_feeds(feeds, OutletState.OFF, controller_of, verify_s=verify_s, force=True)
    await trio.sleep(pause_s)
    on = await _switch_all(feeds, OutletState.ON, controller_of, {}, verify_s=verify_s, force=True)
    return off, on


async def _switch_all(
    feeds: Sequence[OutletRef],
    state: OutletState,
    controller_of: ControllerOf,
    before: Mapping[OutletRef, OutletState],
    *,
    verify_s: float,
    force: bool,
) -> FeedsReport:
    grouped = _grouped(feeds)
    sent_s = now_s()
    reports, errors = await settle(
        {
            name: partial(
                switch_verified,
                controller_of(name),
                outlets,
                state,
                verify_s=verify_s,
                force=force,
            )
            for name, outlets in grouped.items()
        }
    )
    if errors:
        raise _named(errors, feeds, await _put_back(reports, before, controller_of, verify_s))
    return FeedsReport(
        state,
        reports,
        min((r.sent_s for r in reports.values()), default=sent_s),
        max((r.verified_s for r in reports.values()), default=sent_s),
    )


async def _put_back(
    reports: Mapping[str, PowerReport],
    before: Mapping[OutletRef, OutletState],
    controller_of: ControllerOf,
    verify_s: float,
) -> str:
    """Undo the controllers that did switch; says in words what became of them."""
    works = {}
    for name, report in reports.items():
        for outlet in report.commanded:
            was = before.get(OutletRef(name, outlet))
            if was is not None and was is not report.state:
                works[OutletRef(name, outlet)] = partial(
                    switch_verified, controller_of(name), (outlet,), was, verify_s=verify_s
                )
    undone: Mapping[OutletRef, PowerReport] = {}
    if works:
        with trio.move_on_after(PUT_BACK_S):
            undone, _ = await settle(works)
    words = [f"{feed} was put back {before[feed]}" for feed in undone]
    words += [
        f"{feed} could not be put back {before[feed]}" for feed in works if feed not in undone
    ]
    if not works:
        words = [
            f"{OutletRef(name, outlet)} is {report.state}"
            for name, report in reports.items()
            for outlet in report.outlets
        ]
    return ", ".join(words) or "no other feed was switched"


def _grouped(feeds: Sequence[OutletRef]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for feed in feeds:
        grouped.setdefault(feed.controller, []).append(feed.outlet)
    return grouped


def _named(
    errors: Mapping[str, TestbedError], feeds: Sequence[OutletRef], rest: str
) -> TestbedError:
    """The first error, with the names of all feeds that failed and the fate of the rest."""
    failed = [str(feed) for feed in feeds if feed.controller in errors]
    error = next(iter(errors.values()))
    others = "".join(f"; {other.message}" for other in list(errors.values())[1:])
    error.message = f"feed {', '.join(failed)} failed: {error.message}{others}; {rest}"
    error.fields["feeds"] = failed
    return error
