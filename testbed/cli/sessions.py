"""How commands by hand work with a rack: one session each, with lease, guards and journal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, TypeVar

from testbed.cli.options import seconds

if TYPE_CHECKING:
    from testbed.engine.session import RackSession
    from testbed.rack.rack import Rack

Result = TypeVar("Result")


def on_rack(
    reference: str,
    command: str,
    work: Callable[[RackSession], Awaitable[Result]],
    *,
    mock: bool = False,
    wait: str = "0 s",
    devices: Callable[[Rack], Collection[str]] | None = None,
) -> Result:
    """Open a session on a rack, do the work, close it.

    :param command: the command in words, for whoever finds the rack held.
    :param devices: which devices to connect; all when not given.
    """
    from testbed.engine.paths import state_dir
    from testbed.engine.session import rack_session
    from testbed.rack.loader import load_rack
    from testbed.timing import clock

    wait_s = seconds(wait, "--wait")
    rack = load_rack(reference, mock=mock)

    async def main() -> Result:
        async with rack_session(
            rack,
            owner=f"testbed {command}",
            state_dir=state_dir(),
            wait_s=wait_s,
            devices=None if devices is None else devices(rack),
        ) as session:
            return await work(session)

    return clock.run(main)


def only(rack: Rack, kind: str, given: str | None) -> str:
    """The device that was named, or the only one of its kind.

    :raises RackError: when several could be meant, or the name is wrong.
    """
    from testbed.errors import RackError
    from testbed.source.suggest import did_you_mean

    names = rack.of_kind(kind)
    if given is not None:
        if given not in names:
            raise RackError(
                f"rack {rack.name} has no {kind} {given!r}", remedy=did_you_mean(given, names)
            )
        return given
    if len(names) != 1:
        raise RackError(
            f"rack {rack.name} has {len(names)} devices of kind {kind}",
            remedy=f"name one of {', '.join(names)}" if names else None,
        )
    return names[0]
