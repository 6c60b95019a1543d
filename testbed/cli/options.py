"""Options that several commands share, and how they print."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli import completion

if TYPE_CHECKING:
    from rich.console import Console


class Format(StrEnum):
    """How a command prints: for people, or as JSON on standard output."""

    TEXT = "text"
    JSON = "json"


RackOption = Annotated[
    str,
    typer.Option(
        "--rack", "-r", help="Rack file, or name of a built-in rack.", envvar="TESTBED_RACK",
        autocompletion=completion.racks,
    ),
]  # fmt: skip
MockOption = Annotated[
    bool, typer.Option("--mock", help="Use the mock twin of every device of the rack.")
]
FormatOption = Annotated[Format, typer.Option("--format", "-f", help="Output: text or json.")]
ResultsOption = Annotated[
    Path,
    typer.Option("--results", help="Folder of the runs.", envvar="TESTBED_RESULTS"),
]
WaitOption = Annotated[
    str,
    typer.Option("--wait", help="How long to wait for a rack that is held, as in 10 min."),
]
RESULTS = Path("results")


def console(*, stderr: bool = False) -> Console:
    """A console for people; plain when it is no terminal, or NO_COLOR is set.

    When nobody reads it any more, standard output is an error as any other (rich would end the
    process, and with 1), and standard error falls silent.
    """
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            self.quiet = True
            if not self.stderr:
                raise BrokenPipeError

    return PipeConsole(stderr=stderr, highlight=False)


def print_json(value: Any) -> None:
    """One JSON document on standard output, in ASCII so that any locale can take it."""
    typer.echo(json.dumps(value, indent=2, default=str))


def seconds(text: str, option: str) -> float:
    """Read a duration given as an option. :raises BadParameter: for anything else."""
    from testbed.timing.quantity import SECONDS, parse_quantity

    try:
        value = parse_quantity(text, SECONDS)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
    if value < 0:
        raise typer.BadParameter("it must not be negative", param_hint=option)
    return value
