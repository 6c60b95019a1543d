"""How commands by hand work with a rack: one session each, with lease, guards and journal.

Ctrl-C cancels what is going on as it does in a run: sessions are closed, the lease is given back,
and a device whose state is in doubt is left in the journal, and named.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from testbed.cli.options import seconds
from testbed.errors import EXIT_INTERRUPTED

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
    left_behind: str = "",
) -> Result:
    """Open a session on a rack, do the work, close it.

    :param command: the command in words, for whoever finds the rack held.
    :param devices: which devices to connect before the work begins. Others are when they are
        first used, so that a dead device disturbs only those who need it.
    :param left_behind: what an interrupt may leave, and the way out, for the message.
    :raises Exit: with 130, after an interrupt.
    """
    from testbed.engine.interrupts import Interrupts
    from testbed.engine.paths import state_dir
    from testbed.engine.session import rack_session
    from testbed.rack.loader import load_rack
    from testbed.timing import clock

    wait_s = seconds(wait, "--wait")
    rack = load_rack(reference, mock=mock)
    interrupts = Interrupts()
    done: list[Result] = []

    async def main() -> None:
        with interrupts.stoppable():
            async with rack_session(
                rack,
                owner=f"testbed {command}",
                state_dir=state_dir(),
                wait_s=wait_s,
                devices=() if devices is None else devices(rack),
            ) as session:
                done.append(await work(session))

    with interrupts.installed():
        clock.run(main)
    if done:
        return done[0]
    _tell_interrupt(rack, left_behind)
    raise typer.Exit(EXIT_INTERRUPTED)


def _tell_interrupt(rack: Rack, left_behind: str) -> None:
    from testbed.engine.paths import state_dir
    from testbed.engine.recover import dirty

    typer.echo("interrupted" + (f"; {left_behind}" if left_behind else ""), err=True)
    names = list(dict.fromkeys(name for run in dirty(rack, state_dir()) for name in run.devices))
    if names:
        typer.echo(
            f"not safe: {', '.join(names)}; bring back with: testbed recover --rack "
            f"{rack.reference}",
            err=True,
        )


def mark_of(rack: Rack, *names: str) -> str:
    """What a line about these devices ends with, unless all of them are real: `` (mock)``."""
    found = sorted({str(rack.devices[name].backend) for name in names} - {"real"})
    return f" ({', '.join(found)})" if found else ""


def labelled(rack: Rack, **readings: Any) -> dict[str, Any]:
    """What was read from a rack, as a record that says which, and whether it is real."""
    return {"rack": rack.name, "backend": rack.backend_label, **readings}


def heading(record: Mapping[str, Any]) -> str:
    """The first line for people of such a record."""
    return f"rack {record['rack']} ({record['backend']} backend)"


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
