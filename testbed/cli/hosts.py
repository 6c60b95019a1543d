"""``testbed host``: GPU hosts by hand."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.options import (
    Format,
    FormatOption,
    MockOption,
    RackOption,
    WaitOption,
    print_json,
)
from testbed.cli.sessions import on_rack

if TYPE_CHECKING:
    from testbed.engine.session import RackSession

app = typer.Typer(
    help="Hosts by hand. Example: testbed host list",
    no_args_is_help=True,
)
HostArgument = Annotated[str, typer.Argument(help="Name of the host in the rack file.")]


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

    async def work(session: RackSession) -> dict[str, str]:
        from testbed.engine.reading import read_rack

        hosts: dict[str, str] = (await read_rack(session))["hosts"]
        return hosts

    found = on_rack(rack, "host list", work, mock=mock, wait=wait)
    if format is Format.JSON:
        print_json(found)
        return
    for name, text in found.items():
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

    Example: testbed host run host0 -- hostname
    """

    async def work(session: RackSession) -> Any:
        from testbed.hal.capabilities import Host

        return await session.device(host, Host).run(argv)

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
    """Show boot id, uptime, GPUs and their errors.

    Example: testbed host health host0
    """

    async def work(session: RackSession) -> dict[str, Any]:
        from testbed.hal.capabilities import GpuHost, Host

        found: dict[str, Any] = asdict(await session.device(host, Host).health())
        if "gpu-host" in session.rack.devices[host].driver.capabilities:
            gpus = session.device(host, GpuHost)
            found["gpus"] = [asdict(gpu) for gpu in await gpus.gpus()]
            found["gpu_errors"] = [asdict(error) for error in await gpus.gpu_errors()]
        return found

    _print(
        on_rack(rack, "host health", work, mock=mock, wait=wait, devices=lambda r: [host]), format
    )


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
        return {name: asdict(state) for name, state in states.items()}

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

    async def work(session: RackSession) -> int:
        from testbed.hal.capabilities import Host

        return await session.device(host, Host).kill(tag)

    count = on_rack(rack, "host kill", work, mock=mock, wait=wait, devices=lambda r: [host])
    typer.echo(f"{count} process{'es' if count != 1 else ''} ended on {host}")


def _print(found: dict[str, Any], format: Format) -> None:
    if format is Format.JSON:
        print_json(found)
        return
    for name, value in found.items():
        if isinstance(value, dict):
            typer.echo(f"{name}: " + ", ".join(f"{k} {v}" for k, v in value.items()))
        elif isinstance(value, list):
            typer.echo(f"{name}: {len(value)}")
            for item in value:
                typer.echo("  " + ", ".join(f"{k} {v}" for k, v in item.items()))
        else:
            typer.echo(f"{name}: {value}")
