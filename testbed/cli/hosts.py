"""``testbed host``: GPU hosts by hand."""

from __future__ import annotations

from dataclasses import asdict
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
from testbed.cli.sessions import heading, labelled, mark_of, on_rack

if TYPE_CHECKING:
    from testbed.engine.session import RackSession

app = typer.Typer(
    help="Hosts by hand. Example: testbed host list",
    no_args_is_help=True,
)
HostArgument = Annotated[
    str,
    typer.Argument(help="Name of the host in the rack file.", autocompletion=completion.hosts),
]


@app.command("list")
def list_hosts(
    rack: RackOption = "mock",
    mock: MockOption = False,
    wait: WaitOption = "0 s",
    format: FormatOption = Format.TEXT,
) -> None:
    """List the hosts with their state.

    Example: testbed host list
    """

    async def work(session: RackSession) -> dict[str, Any]:
        from testbed.engine.reading import read_rack

        return labelled(session.rack, hosts=(await read_rack(session))["hosts"])

    found = on_rack(rack, "host list", work, mock=mock, wait=wait)
    if format is Format.JSON:
        print_json(found)
        return
    typer.echo(heading(found))
    for name, text in found["hosts"].items():
        typer.echo(f"{name:10} {text}")


@app.command(context_settings={"ignore_unknown_options": True})
def run(
    host: HostArgument,
    argv: Annotated[list[str], typer.Argument(help="The command, after --.")],
    rack: RackOption = "mock",
    mock: MockOption = False,
    wait: WaitOption = "0 s",
) -> None:
    """Run a command on a host; its exit status becomes that of this command.

    Its two outputs become those of this command too; that a host is no real one is told on
    standard error.

    Example: testbed host run host0 -- hostname
    """

    async def work(session: RackSession) -> Any:
        from testbed.hal.capabilities import Host

        device = session.device(host, Host)
        mark = mark_of(session.rack, host)
        if mark:
            typer.echo(f"{host}{mark}", err=True)
        return await device.run(argv)

    result = on_rack(
        rack, f"host run on {host}", work, mock=mock, wait=wait, devices=lambda r: [host]
    )
    typer.echo(result.stdout, nl=False)
    typer.echo(result.stderr, nl=False, err=True)
    raise typer.Exit(result.exit_status)


@app.command()
def health(
    host: HostArgument,
    rack: RackOption = "mock",
    mock: MockOption = False,
    wait: WaitOption = "0 s",
    format: FormatOption = Format.TEXT,
) -> None:
    """Show boot id and uptime.

    Example: testbed host health host0
    """

    async def work(session: RackSession) -> dict[str, Any]:
        from testbed.hal.capabilities import Host

        return _of(session, host, asdict(await session.device(host, Host).health()))

    _print(
        on_rack(rack, "host health", work, mock=mock, wait=wait, devices=lambda r: [host]), format
    )


@app.command()
def gpus(
    host: HostArgument,
    rack: RackOption = "mock",
    mock: MockOption = False,
    wait: WaitOption = "0 s",
    format: FormatOption = Format.TEXT,
) -> None:
    """Show the GPUs, and their errors since the host has booted.

    Example: testbed host gpus host0
    """

    async def work(session: RackSession) -> dict[str, Any]:
        from testbed.hal.capabilities import GpuHost

        device = session.device(host, GpuHost)
        found = {
            "gpus": [asdict(gpu) for gpu in await device.gpus()],
            "gpu_errors": [asdict(error) for error in await device.gpu_errors()],
        }
        return _of(session, host, found)

    _print(on_rack(rack, "host gpus", work, mock=mock, wait=wait, devices=lambda r: [host]), format)


@app.command()
def nics(
    host: HostArgument,
    rack: RackOption = "mock",
    mock: MockOption = False,
    wait: WaitOption = "0 s",
    format: FormatOption = Format.TEXT,
) -> None:
    """Show the data interfaces: carrier, rate, received light.

    Example: testbed host nics host0
    """

    async def work(session: RackSession) -> dict[str, Any]:
        from testbed.hal.capabilities import NicHost

        states = await session.device(host, NicHost).interfaces()
        return _of(session, host, {"interfaces": [asdict(state) for state in states.values()]})

    _print(on_rack(rack, "host nics", work, mock=mock, wait=wait, devices=lambda r: [host]), format)


@app.command()
def kill(
    host: HostArgument,
    tag: Annotated[str, typer.Argument(help="Run id that the processes were started by.")],
    rack: RackOption = "mock",
    mock: MockOption = False,
    wait: WaitOption = "0 s",
) -> None:
    """End all processes that a run has left on a host.

    Example: testbed host kill host0 20260101-120000-abcdef-lumion-failover
    """

    async def work(session: RackSession) -> str:
        from testbed.hal.capabilities import Host

        count = await session.device(host, Host).kill(tag)
        noun = "process" if count == 1 else "processes"
        return f"{count} {noun} ended on {host}{mark_of(session.rack, host)}"

    typer.echo(on_rack(rack, "host kill", work, mock=mock, wait=wait, devices=lambda r: [host]))


def _of(session: RackSession, host: str, found: dict[str, Any]) -> dict[str, Any]:
    """What was read from a host, labelled."""
    return {"host": host, "backend": str(session.rack.devices[host].backend), **found}


def _print(found: dict[str, Any], format: Format) -> None:
    if format is Format.JSON:
        print_json(found)
        return
    for name, value in found.items():
        if isinstance(value, list):
            typer.echo(f"{name}: {len(value)}")
            for item in value:
                typer.echo("  " + ", ".join(f"{k} {v}" for k, v in item.items()))
        else:
            typer.echo(f"{name}: {value}")
