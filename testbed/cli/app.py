"""All commands of ``testbed``, put together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from testbed.cli import devices, files, hosts, power, racks, results, running, switches
from testbed.errors import EXIT_USER


class _BrokenPipe(Exception):
    """Carries a broken pipe past typer, which would end with 1: *an expectation failed*."""


@contextmanager
def _past_typer() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Abort from None
    except BrokenPipeError:
        raise _BrokenPipe from None


class _Commands(TyperGroup):
    """Leaves interrupts and broken pipes to :mod:`testbed.cli.main`, as every other error."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _past_typer():  # where --help and --version print
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _past_typer():
            return super().invoke(ctx)


app = typer.Typer(
    name="testbed",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"testbed {version('optical-testbed')}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show tracebacks; may stand anywhere. [env: TESTBED_DEBUG]"),
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Run experiments on optical fabrics: on a lab rack, or on simulated twins of one.

    Example: testbed run playbooks/failover.yaml
    """


app.command("run")(running.run)
app.command("plan")(files.plan)
app.command("validate")(files.validate)
app.command("schema")(files.schema)
app.command("devices")(devices.devices)
app.command("status")(devices.status)
app.add_typer(switches.app, name="switch")
app.add_typer(power.app, name="power")
app.add_typer(hosts.app, name="host")
app.add_typer(racks.app, name="rack")
app.command("recover")(racks.recover)
app.add_typer(results.app, name="results")
app.command("report")(results.report)

# typer brings a click of its own in some releases and uses the installed one in others.
_UsageError: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def invoke(arguments: list[str]) -> int:
    """Run a command line; returns its exit code.

    :raises TestbedError: what the command raised.
    :raises KeyboardInterrupt: for Ctrl-C.
    :raises BrokenPipeError: when nobody reads the output any more.
    """
    try:
        code = app(arguments, prog_name="testbed", standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except _BrokenPipe:
        raise BrokenPipeError from None
    except _UsageError as error:
        error.show()
        return EXIT_USER
    return code if isinstance(code, int) else 0
