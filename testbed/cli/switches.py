"""``testbed switch``: optical switches by hand, under the same lease and guards as a run."""

from __future__ import annotations

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
)
from testbed.cli.sessions import heading, labelled, mark_of, on_rack, only

if TYPE_CHECKING:
    from collections.abc import Collection

    from testbed.engine.session import RackSession
    from testbed.rack.rack import Rack

app = typer.Typer(
    help="Optical switches by hand. Example: testbed switch show",
    no_args_is_help=True,
)
SwitchOption = Annotated[
    str | None,
    typer.Option(
        "--switch",
        help="Which switch, when the rack has several.",
        autocompletion=completion.switches,
    ),
]
LOOK = "see what became of it with: testbed switch show"
EndA = Annotated[
    str,
    typer.Argument(help="An interface, as host0.p0.", autocompletion=completion.interfaces),
]
EndB = Annotated[
    str,
    typer.Argument(help="The interface at the other end.", autocompletion=completion.interfaces),
]


@app.command("list")
def list_switches(
    rack: RackOption = "mock", mock: MockOption = False, format: FormatOption = Format.TEXT
) -> None:
    """List the switches of a rack.

    Example: testbed switch list --rack playbooks/racks/rack16.yaml
    """
    from testbed.rack.loader import load_rack

    checked = load_rack(rack, mock=mock)
    rows = [
        {"switch": name, "driver": entry.driver.name, "backend": str(entry.backend)}
        for name, entry in checked.devices.items()
        if name in checked.of_kind("switch")
    ]
    if format is Format.JSON:
        print_json(rows)
        return
    for row in rows:
        typer.echo("  ".join(row.values()))


@app.command()
def show(
    rack: RackOption = "mock",
    mock: MockOption = False,
    wait: WaitOption = "0 s",
    format: FormatOption = Format.TEXT,
) -> None:
    """Show links and circuits as read back from the switches.

    Example: testbed switch show --rack mock
    """

    async def read(session: RackSession) -> dict[str, Any]:
        from testbed.hal.capabilities import OpticalSwitch

        names = session.rack.of_kind("switch")
        circuits = {n: await session.device(n, OpticalSwitch).circuits() for n in names}
        return labelled(
            session.rack,
            links=sorted(map(str, await session.fabric.links())),
            circuits={n: sorted(map(str, found)) for n, found in circuits.items()},
        )

    found = on_rack(rack, "switch show", read, mock=mock, wait=wait, devices=_all_switches)
    if format is Format.JSON:
        print_json(found)
        return
    typer.echo(heading(found))
    for name, circuits in found["circuits"].items():
        typer.echo(f"{name}: {', '.join(circuits) or 'no circuits'}")
    for link in found["links"]:
        typer.echo(f"link {link}")


@app.command()
def connect(
    one: EndA,
    other: EndB,
    rack: RackOption = "mock",
    mock: MockOption = False,
    wait: WaitOption = "0 s",
) -> None:
    """Link two interfaces: both circuits, verified, and both carriers up.

    Example: testbed switch connect host0.p0 host1.p0
    """
    _change(one, other, rack, mock, wait, add=True)


@app.command()
def disconnect(
    one: EndA,
    other: EndB,
    rack: RackOption = "mock",
    mock: MockOption = False,
    wait: WaitOption = "0 s",
) -> None:
    """Take the link of two interfaces down.

    Example: testbed switch disconnect host0.p0 host1.p0
    """
    _change(one, other, rack, mock, wait, add=False)


def _change(one: str, other: str, rack: str, mock: bool, wait: str, *, add: bool) -> None:
    from testbed.hal.wiring import Endpoint
    from testbed.rack.links import Link
    from testbed.timing.quantity import format_seconds

    try:
        link = Link.between(Endpoint.parse(one), Endpoint.parse(other))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None

    async def work(session: RackSession) -> str:
        if add:
            report = await session.fabric.change(add=[link])
        else:
            report = await session.fabric.change(remove=[link])
        mark = mark_of(session.rack, *session.rack.of_kind("switch"))
        sent_s = report.sent_s
        if sent_s is None:
            return f"{link}: {'there already' if add else 'not there'}; nothing was sent{mark}"
        parts = [
            f"{name} {format_seconds(at_s - sent_s)}"
            for name, at_s in (
                ("acknowledged", report.acknowledged_s),
                ("verified", report.verified_s),
                ("link up", report.link_up_s if add else None),
            )
            if at_s is not None
        ]
        return f"{link} {'up' if add else 'down'}: {', '.join(parts)} after sent{mark}"

    def needed(checked: Rack) -> Collection[str]:
        """To take a link down, its hosts need not be alive."""
        hosts = [end.host for end in (link.a, link.b)] if add else []
        return [*checked.of_kind("switch"), *hosts]

    verb = "connect" if add else "disconnect"
    typer.echo(
        on_rack(
            rack,
            f"switch {verb}",
            work,
            mock=mock,
            wait=wait,
            devices=needed,
            left_behind=LOOK,
        )
    )


@app.command("apply")
def apply_circuits(
    circuits: Annotated[
        list[str] | None, typer.Argument(help="All circuits afterwards, as 1>9.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Take all circuits down.")] = False,
    switch: SwitchOption = None,
    rack: RackOption = "mock",
    mock: MockOption = False,
    wait: WaitOption = "0 s",
) -> None:
    """Make the circuits of a switch exactly these.

    Example: testbed switch apply '1>9' '2>10'
    """
    from testbed.hal.types import Circuit

    if bool(circuits) is clear:  # nothing at all must not mean: all down
        raise typer.BadParameter("name the circuits, or take all down with --clear")
    target = []
    for text in circuits or []:
        ingress, arrow, egress = (part.strip() for part in text.partition(">"))
        if not (ingress and arrow and egress):
            raise typer.BadParameter(f"{text!r} is no circuit; write ingress>egress, as '1>9'")
        target.append(Circuit(ingress, egress))

    async def work(session: RackSession) -> str:
        from testbed.hal.capabilities import OpticalSwitch

        name = only(session.rack, "switch", switch)
        report = await session.device(name, OpticalSwitch).apply(target)
        return (
            f"{name}: {len(report.added)} added, {len(report.removed)} removed, "
            f"{report.unchanged} unchanged{mark_of(session.rack, name)}"
        )

    typer.echo(
        on_rack(
            rack,
            "switch apply",
            work,
            mock=mock,
            wait=wait,
            devices=_all_switches,
            left_behind=LOOK,
        )
    )


@app.command()
def power(
    ports: Annotated[list[str] | None, typer.Argument(help="Ports; all that are in use.")] = None,
    switch: SwitchOption = None,
    rack: RackOption = "mock",
    mock: MockOption = False,
    wait: WaitOption = "0 s",
    format: FormatOption = Format.TEXT,
) -> None:
    """Measure optical power per port, in dBm.

    Example: testbed switch power 9 10
    """

    async def work(session: RackSession) -> dict[str, Any]:
        from testbed.hal.capabilities import OpticalPowerMonitor, OpticalSwitch

        name = only(session.rack, "switch", switch)
        wanted = list(ports or [])
        if not wanted:
            used = await session.device(name, OpticalSwitch).circuits()
            wanted = [port for c in sorted(used) for port in (c.ingress, c.egress)]
        monitor = session.device(name, OpticalPowerMonitor)
        measured = dict(await monitor.port_power_dbm(wanted)) if wanted else {}
        return labelled(session.rack, switch=name, power_dbm=measured)

    found = on_rack(rack, "switch power", work, mock=mock, wait=wait)
    if format is Format.JSON:
        print_json(found)
        return
    typer.echo(f"{heading(found)}: {found['switch']}")
    if not found["power_dbm"]:
        typer.echo("no port is in use; name some to measure them")
    for port, value in found["power_dbm"].items():
        typer.echo(f"{port:>6}  {value:7.2f} dBm")


def _all_switches(rack: Any) -> Any:
    return rack.of_kind("switch")
