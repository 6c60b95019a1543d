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
from testbed.cli.sessions import on_rack

if TYPE_CHECKING:
    from testbed.engine.session import RackSession


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
    if connect:

        async def identities(session: RackSession) -> dict[str, str]:
            return {
                name: " ".join(p for p in (i.vendor, i.model, i.serial, i.firmware) if p)
                for name, i in session.identities.items()
            }

        found = on_rack(rack, "devices --connect", identities, mock=mock, wait=wait)
        for row in rows:
            row["identity"] = found.get(row["device"], "")
    if format is Format.JSON:
        print_json(rows)
        return
    from testbed.report.terminal import table

    columns = ["device", "driver", "backend", "capabilities", *(["identity"] if connect else [])]
    table(
        console(),
        f"rack {checked.name}: {len(rows)} devices ({checked.backend_label} backend)",
        [(column, "left") for column in columns],
        [
            (r["device"], r["driver"], r["backend"], ", ".join(r["capabilities"]),
             *([r["identity"]] if connect else []))
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

    A rack that is held is not touched: then only its holder is told.

    Example: testbed status --rack mock
    """
    from testbed.engine.paths import rack_folder, state_dir
    from testbed.engine.recover import dirty
    from testbed.rack.lease import holder_of
    from testbed.rack.loader import load_rack

    checked = load_rack(rack, mock=mock)
    held = holder_of(rack_folder(checked, state_dir()))
    left = dirty(checked, state_dir())
    record: dict[str, Any] = {
        "rack": checked.name,
        "backend": checked.backend_label,
        "holder": None if held is None else str(held),
        "dirty": [{"run": run.run, "devices": list(run.devices)} for run in left],
    }
    if held is None and not left:
        record.update(on_rack(rack, "status", _read_all, mock=mock, wait=wait))
    if format is Format.JSON:
        print_json(record)
        return
    out = console()
    out.print(f"rack {checked.name} ({checked.backend_label} backend)")
    out.print(f"  holder   {held or 'nobody'}")
    for run in left:
        out.print(f"  dirty    {', '.join(run.devices)}, left by run {run.run}")
        out.print(f"           bring back with: testbed recover --rack {rack}")
    for name in record.get("links", []):
        out.print(f"  link     {name}")
    for name, state in record.get("outlets", {}).items():
        out.print(f"  outlet   {name} {state}")
    for name, text in record.get("hosts", {}).items():
        out.print(f"  host     {name} {text}")


async def _read_all(session: RackSession) -> dict[str, Any]:
    from testbed.engine.reading import read_rack

    return await read_rack(session)
