"""``testbed power``: outlets by hand, verified."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli import completion
from testbed.cli.options import (
    Format,
    FormatOption,
    MockOption,
    RackOption,
    WaitOption,
    print_json,
    seconds,
)
from testbed.cli.sessions import heading, labelled, mark_of, on_rack

if TYPE_CHECKING:
    from testbed.engine.session import RackSession
    from testbed.hal.wiring import OutletRef
    from testbed.rack.rack import Rack

app = typer.Typer(
    help="Power by hand. Example: testbed power status",
    no_args_is_help=True,
)
Target = Annotated[
    str,
    typer.Argument(
        help="A host (all its feeds), or an outlet as pdu.1.", autocompletion=completion.fed
    ),
]


@app.command()
def status(
    rack: RackOption = "mock",
    mock: MockOption = False,
    wait: WaitOption = "0 s",
    format: FormatOption = Format.TEXT,
) -> None:
    """Show all outlets and what they feed.

    Example: testbed power status --rack playbooks/racks/rack16.yaml
    """

    async def work(session: RackSession) -> dict[str, Any]:
        from testbed.hal.capabilities import PowerController
        from testbed.hal.wiring import OutletRef

        found: dict[str, dict[str, Any]] = {}
        for name in session.rack.of_kind("power"):
            for outlet, state in (await session.device(name, PowerController).outlets()).items():
                feeds = session.rack.wiring.hosts_fed_by(OutletRef(name, outlet))
                found[f"{name}.{outlet}"] = {"state": str(state), "feeds": list(feeds)}
        return labelled(session.rack, outlets=found)

    found = on_rack(rack, "power status", work, mock=mock, wait=wait, devices=_controllers)
    if format is Format.JSON:
        print_json(found)
        return
    typer.echo(heading(found))
    for name, record in found["outlets"].items():
        typer.echo(f"{name:12} {record['state']:4} {', '.join(record['feeds'])}".rstrip())


@app.command()
def on(
    target: Target, rack: RackOption = "mock", mock: MockOption = False, wait: WaitOption = "0 s"
) -> None:
    """Switch on, and verify it.

    Example: testbed power on host1
    """
    _switch(target, "on", rack, mock, wait)


@app.command()
def off(
    target: Target, rack: RackOption = "mock", mock: MockOption = False, wait: WaitOption = "0 s"
) -> None:
    """Switch off, and verify it. A host with two feeds loses both.

    Example: testbed power off host1
    """
    _switch(target, "off", rack, mock, wait)


def _switch(target: str, state: str, rack: str, mock: bool, wait: str) -> None:
    async def work(session: RackSession) -> str:
        from testbed.hal.capabilities import PowerController
        from testbed.hal.feeds import switch_feeds
        from testbed.hal.types import OutletState

        outlets = _outlets(session.rack, target)
        report = await switch_feeds(
            outlets, OutletState(state), lambda name: session.device(name, PowerController)
        )
        as_it_was = "" if report.changed else ", as it was"
        return f"{target} {state}{as_it_was}, verified{_mark(session.rack, outlets)}"

    typer.echo(
        on_rack(
            rack,
            f"power {state}",
            work,
            mock=mock,
            wait=wait,
            devices=lambda checked: _controllers_of(checked, target),
            left_behind="see what became of it with: testbed power status",
        )
    )


@app.command()
def cycle(
    target: Target,
    pause: Annotated[str, typer.Option(help="Time without power, from verified off.")] = "5 s",
    rack: RackOption = "mock",
    mock: MockOption = False,
    wait: WaitOption = "0 s",
) -> None:
    """Off, verified off, pause, on, verified on. An interrupt leaves the power as it is then.

    Example: testbed power cycle host1 --pause '2 s'
    """
    pause_s = seconds(pause, "--pause")

    async def work(session: RackSession) -> str:
        from testbed.hal.capabilities import PowerController
        from testbed.hal.feeds import cycle_feeds

        outlets = _outlets(session.rack, target)
        off, on = await cycle_feeds(
            outlets, lambda name: session.device(name, PowerController), pause_s=pause_s
        )
        return (
            f"{target} cycled: without power for {on.sent_s - off.verified_s:.3g} s, on again and "
            f"verified{_mark(session.rack, outlets)}"
        )

    typer.echo(
        on_rack(
            rack,
            "power cycle",
            work,
            mock=mock,
            wait=wait,
            devices=lambda checked: _controllers_of(checked, target),
            left_behind=f"{target} may be without power; switch it on with: "
            f"testbed power on {target} --rack {rack}",
        )
    )


@app.command()
def read(
    rack: RackOption = "mock",
    mock: MockOption = False,
    wait: WaitOption = "0 s",
    format: FormatOption = Format.TEXT,
) -> None:
    """Measure electrical power per outlet, in watts.

    Example: testbed power read
    """

    async def work(session: RackSession) -> dict[str, Any]:
        from testbed.hal.capabilities import PowerMeter

        found = {}
        for name in session.rack.having("power-meter"):
            for outlet, watts in (await session.device(name, PowerMeter).outlet_power_w()).items():
                found[f"{name}.{outlet}"] = watts
        return labelled(session.rack, power_w=found)

    found = on_rack(rack, "power read", work, mock=mock, wait=wait)
    if format is Format.JSON:
        print_json(found)
        return
    typer.echo(heading(found))
    for name, watts in found["power_w"].items():
        typer.echo(f"{name:12} {watts:8.1f} W")


def _controllers(rack: Rack) -> Any:
    return rack.of_kind("power")


def _controllers_of(rack: Rack, target: str) -> Any:
    return [outlet.controller for outlet in _outlets(rack, target)]


def _mark(rack: Rack, outlets: Iterable[OutletRef]) -> str:
    return mark_of(rack, *(outlet.controller for outlet in outlets))


def _outlets(rack: Rack, target: str) -> tuple[OutletRef, ...]:
    """The feeds of a host, or one outlet.

    :raises RackError: when the rack has neither.
    """
    from testbed.errors import RackError
    from testbed.hal.wiring import OutletRef
    from testbed.source.suggest import did_you_mean

    feeds = rack.wiring.feeds_of(target)
    if feeds:
        return feeds
    controller, dot, outlet = target.partition(".")
    if dot and controller in rack.of_kind("power"):
        return (OutletRef(controller, outlet),)
    known = [*rack.of_kind("host"), *(str(feed.outlet) for feed in rack.wiring.feeds)]
    raise RackError(
        f"rack {rack.name} has no host and no outlet {target!r}",
        remedy=did_you_mean(target, known),
    )
