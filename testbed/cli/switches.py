"""``testbed switch``: optical switches by hand, under the same lease and guards as a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.options import (
    Format,
    FormatOption,
    MockOption,
    RackOption,
    WaitOption,
    console,
    print_json,
)
from testbed.cli.sessions import on_rack, only

if TYPE_CHECKING:
    from testbed.engine.session import RackSession

app = typer.Typer(
    help="Optical switches by hand. Example: testbed switch show",
    no_args_is_help=True,
)
SwitchOption = Annotated[
    str | None, typer.Option("--switch", help="Which switch, when the rack has several.")
]
EndA = Annotated[str, typer.Argument(help="An interface, as host0.p0.")]
EndB = Annotated[str, typer.Argument(help="The interface at the other end.")]


@app.command("list")
def list_switches(
    rack: RackOption = "mock", mock: MockOption = False, format: FormatOption = Format.TEXT
) -> None:
    """List the switches of a rack.

    Example: testbed switch list --rack playbooks/racks/rack16.yaml
    """
    from testbed.rack.loader import load_rack

    checked = load_rack(rack, mock=mock)
    names = checked.of_kind("switch")
    if format is Format.JSON:
        print_json(list(names))
        return
    for name in names:
        entry = checked.devices[name]
        typer.echo(f"{name}  {entry.driver.name}  {entry.backend}")


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
        return {
            "backend": session.rack.backend_label,
            "links": sorted(map(str, await session.fabric.links())),
            "circuits": {n: sorted(map(str, found)) for n, found in circuits.items()},
        }

    found = on_rack(rack, "switch show", read, mock=mock, wait=wait, devices=_all_switches)
    if format is Format.JSON:
        print_json(found)
        return
    out = console()
    for name, circuits in found["circuits"].items():
        out.print(f"{name} ({found['backend']}): {', '.join(circuits) or 'no circuits'}")
    for link in found["links"]:
        out.print(f"link {link}")


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

    async def work(session: RackSession) -> Any:
        if add:
            return await session.fabric.change(add=[link])
        return await session.fabric.change(remove=[link])

    verb = "connect" if add else "disconnect"
    report = on_rack(rack, f"switch {verb}", work, mock=mock, wait=wait)
    if not report.changed:
        typer.echo(f"{link}: {'there already' if add else 'not there'}; nothing was sent")
        return
    sent_s = report.sent_s
    parts = [
        f"{name} {format_seconds(at_s - sent_s)}"
        for name, at_s in (
            ("acknowledged", report.acknowledged_s),
            ("verified", report.verified_s),
            ("link up", report.link_up_s if add else None),
        )
        if at_s is not None
    ]
    typer.echo(f"{link} {'up' if add else 'down'}: {', '.join(parts)} after sent")


@app.command("apply")
def apply_circuits(
    circuits: Annotated[
        list[str] | None, typer.Argument(help="All circuits afterwards, as 1>9; none = clear.")
    ] = None,
    switch: SwitchOption = None,
    rack: RackOption = "mock",
    mock: MockOption = False,
    wait: WaitOption = "0 s",
) -> None:
    """Make the circuits of a switch exactly these.

    Example: testbed switch apply '1>9' '2>10'
    """
    from testbed.hal.types import Circuit

    target = []
    for text in circuits or []:
        ingress, arrow, egress = (part.strip() for part in text.partition(">"))
        if not (ingress and arrow and egress):
            raise typer.BadParameter(f"{text!r} is no circuit; write ingress>egress, as '1>9'")
        target.append(Circuit(ingress, egress))

    async def work(session: RackSession) -> Any:
        from testbed.hal.capabilities import OpticalSwitch

        return await session.device(only(session.rack, "switch", switch), OpticalSwitch).apply(
            target
        )

    report = on_rack(rack, "switch apply", work, mock=mock, wait=wait, devices=_all_switches)
    typer.echo(
        f"{len(report.added)} added, {len(report.removed)} removed, {report.unchanged} unchanged"
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

    async def work(session: RackSession) -> dict[str, float]:
        from testbed.hal.capabilities import OpticalPowerMonitor, OpticalSwitch

        name = only(session.rack, "switch", switch)
        wanted = list(ports or [])
        if not wanted:
            used = await session.device(name, OpticalSwitch).circuits()
            wanted = [port for c in sorted(used) for port in (c.ingress, c.egress)]
        if not wanted:
            return {}
        return dict(await session.device(name, OpticalPowerMonitor).port_power_dbm(wanted))

    found = on_rack(rack, "switch power", work, mock=mock, wait=wait)
    if format is Format.JSON:
        print_json(found)
        return
    if not found:
        typer.echo("no port is in use; name some to measure them")
    for port, value in found.items():
        typer.echo(f"{port:>6}  {value:7.2f} dBm")


def _all_switches(rack: Any) -> Any:
    return rack.of_kind("switch")
