"""``testbed devices`` and ``testbed status``."""

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
from testbed.cli.sessions import heading, labelled, on_rack
from testbed.errors import EXIT_DEVICE

if TYPE_CHECKING:
    from testbed.engine.session import RackSession
    from testbed.rack.rack import Rack


def devices(
    rack: RackOption = "mock",
    mock: MockOption = False,
    drivers: Annotated[
        bool, typer.Option("--drivers", help="List the installed drivers instead.")
    ] = False,
    connect: Annotated[
        bool, typer.Option("--connect", help="Connect to each device and ask what it is.")
    ] = False,
    wait: WaitOption = "0 s",
    format: FormatOption = Format.TEXT,
) -> None:
    """List the devices of a rack: driver, backend, capabilities.

    With --connect the exit code is 3 when a device cannot be connected.

    Example: testbed devices --rack playbooks/racks/bench4.yaml --connect
    """
    if drivers:
        _drivers(format)
        return
    from testbed.rack.loader import load_rack

    checked = load_rack(rack, mock=mock)
    rows: list[dict[str, Any]] = [
        {
            "device": name,
            "driver": entry.driver.name,
            "backend": str(entry.backend),
            "capabilities": sorted(entry.driver.capabilities),
        }
        for name, entry in checked.devices.items()
    ]
    failed = False
    if connect:
        found = on_rack(rack, "devices --connect", _identify, mock=mock, wait=wait)
        for row in rows:
            row |= found[row["device"]]
        failed = any("error" in row for row in rows)
    if format is Format.JSON:
        print_json(rows)
    else:
        _show(checked, rows, connect)
    if failed:
        raise typer.Exit(EXIT_DEVICE)


async def _identify(session: RackSession) -> dict[str, dict[str, str]]:
    """What each device says it is, or why it cannot be asked."""
    from testbed.hal.together import settle

    found, errors = await settle({name: gate.open for name, gate in session.gates.items()})
    return {
        **{
            name: {"identity": " ".join(p for p in (i.vendor, i.model, i.serial, i.firmware) if p)}
            for name, i in found.items()
        },
        **{name: {"error": error.message} for name, error in errors.items()},
    }


def _show(checked: Rack, rows: list[dict[str, Any]], connect: bool) -> None:
    from testbed.report.terminal import table

    columns = ["device", "driver", "backend", "capabilities", *(["identity"] if connect else [])]
    table(
        console(),
        f"{heading(labelled(checked))}: {len(rows)} devices",
        [(column, "left") for column in columns],
        [
            (r["device"], r["driver"], r["backend"], ", ".join(r["capabilities"]),
             *([r.get("identity", r.get("error", ""))] if connect else []))
            for r in rows
        ],
    )  # fmt: skip


def _drivers(format: Format) -> None:
    from testbed.hal.registry import driver, driver_names

    rows: list[dict[str, Any]] = [
        {
            "driver": spec.name,
            "kind": spec.kind,
            "backends": [str(b) for b in spec.backends],
            "capabilities": sorted(spec.capabilities),
            "summary": spec.summary,
        }
        for spec in map(driver, driver_names())
    ]
    if format is Format.JSON:
        print_json(rows)
        return
    from testbed.report.terminal import table

    columns = ("driver", "kind", "backends", "summary")
    table(
        console(),
        "installed drivers",
        [(name, "left") for name in columns],
        [(r["driver"], r["kind"], ", ".join(r["backends"]), r["summary"]) for r in rows],
    )


def status(
    rack: RackOption = "mock",
    mock: MockOption = False,
    wait: WaitOption = "0 s",
    format: FormatOption = Format.TEXT,
) -> None:
    """Show the state of a rack: who holds it, what is dirty, links, outlets, hosts.

    A rack that is held is not touched: then only its holder is told. Exit code 3 when a device
    does not answer.

    Example: testbed status --rack mock
    """
    from testbed.engine.paths import rack_folder, state_dir
    from testbed.engine.recover import dirty
    from testbed.rack.lease import holder_of
    from testbed.rack.loader import load_rack

    checked = load_rack(rack, mock=mock)
    held = holder_of(rack_folder(checked, state_dir()))
    left = dirty(checked, state_dir())
    record = labelled(
        checked,
        holder=None if held is None else str(held),
        dirty=[{"run": run.run, "devices": list(run.devices)} for run in left],
        errors={},
    )
    if held is None and not left:
        record.update(on_rack(rack, "status", _read_all, mock=mock, wait=wait))
    if format is Format.JSON:
        print_json(record)
    else:
        _show_status(checked, record)
    if record["errors"]:
        raise typer.Exit(EXIT_DEVICE)


def _show_status(checked: Rack, record: dict[str, Any]) -> None:
    typer.echo(heading(record))
    typer.echo(f"  holder   {record['holder'] or 'nobody'}")
    for run in record["dirty"]:
        typer.echo(f"  dirty    {', '.join(run['devices'])}, left by run {run['run']}")
        typer.echo(f"           bring back with: testbed recover --rack {checked.reference}")
    for name in record.get("links", []):
        typer.echo(f"  link     {name}")
    if "links" in record["errors"]:
        typer.echo(f"  links    unknown: {record['errors']['links']}")
    for name, state in record.get("outlets", {}).items():
        typer.echo(f"  outlet   {name} {state}")
    for name, text in record.get("hosts", {}).items():
        typer.echo(f"  host     {name} {text}")


async def _read_all(session: RackSession) -> dict[str, Any]:
    from testbed.engine.reading import read_rack

    return await read_rack(session)
