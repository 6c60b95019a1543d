"""The command ``testbed``: all commands, and how errors become messages and exit codes."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from testbed.cli import devices, files, hosts, power, racks, results, running, switches
from testbed.errors import EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_USER, TestbedError

app = typer.Typer(
    name="testbed",
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
        bool, typer.Option("--debug", help="Show tracebacks.", envvar="TESTBED_DEBUG")
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


def main() -> None:
    """Entry point: never shows a traceback without ``--debug``."""
    debug = "--debug" in sys.argv or bool(os.environ.get("TESTBED_DEBUG"))
    sys.exit(_guarded(debug))


# typer brings a click of its own in some releases and uses the installed one in others.
_UsageError: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def _guarded(debug: bool) -> int:
    try:
        code = app(standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        return _say("interrupted", EXIT_INTERRUPTED)
    except _UsageError as error:
        error.show()
        return EXIT_USER
    except TestbedError as error:
        if debug:
            raise
        return _say(f"{error.kind}: {error}", error.exit_code)
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            raise
        remedy = "run again with --debug and report the traceback"
        message = f"internal: a defect of the testbed: {type(error).__name__}: {error}"
        return _say(f"{message}\n  remedy: {remedy}", EXIT_INTERNAL)
    return code if isinstance(code, int) else 0


def _say(message: str, code: int) -> int:
    try:
        typer.echo(message, err=True)
    except UnicodeEncodeError:
        sys.stderr.buffer.write(message.encode("ascii", "backslashreplace") + b"\n")
    return code
