"""``testbed rack`` and ``testbed recover``."""

from __future__ import annotations

from typing import Annotated

import typer

from testbed.cli.options import (
    Format,
    FormatOption,
    MockOption,
    RackOption,
    WaitOption,
    print_json,
    seconds,
)

app = typer.Typer(
    help="Racks: what there is, and who holds one. Example: testbed rack lease",
    no_args_is_help=True,
)


@app.command("list")
def list_racks(format: FormatOption = Format.TEXT) -> None:
    """List the racks that come with the testbed.

    Example: testbed rack list
    """
    from testbed.rack.loader import builtin_racks, load_rack

    rows = [load_rack(name).describe() for name in builtin_racks()]
    if format is Format.JSON:
        print_json(rows)
        return
    for row in rows:
        typer.echo(f"{row['name']:10} {row['backend']:8} {len(row['devices'])} devices")


@app.command()
def show(
    rack: RackOption = "mock", mock: MockOption = False, format: FormatOption = Format.TEXT
) -> None:
    """Show a rack's devices and wiring as its file describes them.

    Example: testbed rack show --rack playbooks/racks/bench4.yaml
    """
    from testbed.rack.loader import load_rack

    checked = load_rack(rack, mock=mock)
    if format is Format.JSON:
        record = checked.describe()
        record["fibres"] = [
            {"interface": str(f.endpoint), "port": str(f.switch_port), "transmits": f.transmits}
            for f in checked.wiring.fibres
        ]
        record["feeds"] = [{"outlet": str(f.outlet), "host": f.host} for f in checked.wiring.feeds]
        print_json(record)
        return
    typer.echo(f"{checked.name} ({checked.backend_label}): {checked.description}")
    for name, entry in checked.devices.items():
        typer.echo(f"  {name:10} {entry.driver.name:16} {entry.backend}")
    for end in checked.wiring.endpoints:
        tx, rx = checked.wiring.tx(end), checked.wiring.rx(end)
        typer.echo(f"  {end!s:12} transmits into {tx}, receives from {rx}")
    for feed in checked.wiring.feeds:
        typer.echo(f"  {feed.outlet!s:12} feeds {feed.host}")


@app.command()
def lease(
    rack: RackOption = "mock", mock: MockOption = False, format: FormatOption = Format.TEXT
) -> None:
    """Tell who holds a rack.

    Example: testbed rack lease --rack mock
    """
    from testbed.engine.paths import rack_folder, state_dir
    from testbed.rack.lease import holder_of
    from testbed.rack.loader import load_rack

    checked = load_rack(rack, mock=mock)
    held = holder_of(rack_folder(checked, state_dir()))
    if format is Format.JSON:
        from dataclasses import asdict

        print_json(None if held is None else asdict(held))
        return
    typer.echo(f"{checked.name}: {f'held by {held}' if held else 'free'}")


@app.command()
def release(
    rack: RackOption = "mock",
    mock: MockOption = False,
    force: Annotated[
        bool, typer.Option("--force", help="Take the rack away from whoever holds it.")
    ] = False,
) -> None:
    """Take a rack away from a run that hangs. The run is refused at its next command.

    A run that has died holds nothing: there is no need for this then.

    Example: testbed rack release --rack mock --force
    """
    from testbed.engine.paths import rack_folder, state_dir
    from testbed.errors import LeaseError
    from testbed.rack.lease import break_lease, holder_of
    from testbed.rack.loader import load_rack

    checked = load_rack(rack, mock=mock)
    folder = rack_folder(checked, state_dir())
    held = holder_of(folder)
    if held is None:
        typer.echo(f"{checked.name}: free already")
        return
    if not force:
        raise LeaseError(
            f"rack {checked.name} is held by {held}",
            remedy="interrupt that run, or take the rack from it with --force",
        )
    break_lease(folder)
    typer.echo(f"{checked.name}: taken from {held}")


def recover(
    rack: RackOption = "mock",
    mock: MockOption = False,
    wait: WaitOption = "0 s",
    format: FormatOption = Format.TEXT,
) -> None:
    """Bring back devices that a dead or twice interrupted run has left in an unknown state.

    Example: testbed recover --rack mock
    """
    from testbed.engine.interrupts import Interrupts
    from testbed.engine.paths import state_dir
    from testbed.engine.recover import recover as bring_back
    from testbed.errors import EXIT_DEVICE, EXIT_INTERRUPTED
    from testbed.rack.loader import load_rack
    from testbed.timing import clock

    wait_s = seconds(wait, "--wait")
    checked = load_rack(rack, mock=mock)
    interrupts = Interrupts()

    async def main() -> None:
        report = await bring_back(checked, state_dir(), wait_s=wait_s, interrupts=interrupts)
        if format is Format.JSON:
            print_json(report.as_record())
        elif not report.runs:
            typer.echo(f"{checked.name}: nothing to recover")
        else:
            for run in report.runs:
                typer.echo(f"run {run.run} had changed {', '.join(run.devices)}")
            for name in report.safe:
                typer.echo(f"  {name}: safe")
            for name, why in report.unsafe.items():
                typer.echo(f"  {name}: NOT safe: {why}")
        if report.unsafe:
            raise typer.Exit(EXIT_DEVICE)

    with interrupts.installed():
        clock.run(main)
    if interrupts.count:
        raise typer.Exit(EXIT_INTERRUPTED)
