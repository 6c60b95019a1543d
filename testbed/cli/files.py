"""Commands about files: ``plan``, ``validate``, ``schema``."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli import completion
from testbed.cli.options import Format, FormatOption, MockOption, console, print_json

if TYPE_CHECKING:
    from testbed.source.places import Diagnostic


class Kind(StrEnum):
    """What a schema is for."""

    PLAYBOOK = "playbook"
    RACK = "rack"


def plan(
    playbook: Annotated[
        Path, typer.Argument(help="Playbook file.", autocompletion=completion.playbooks)
    ],
    rack: Annotated[
        str | None,
        typer.Option(
            "--rack",
            "-r",
            help="Rack instead of the playbook's own.",
            envvar="TESTBED_RACK",
            autocompletion=completion.racks,
        ),
    ] = None,
    mock: MockOption = False,
    assignment: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set a variable.")
    ] = None,
    vars_file: Annotated[
        Path | None, typer.Option("--vars", help="YAML file of variables.")
    ] = None,
    tags: Annotated[str, typer.Option(help="Only steps with one of these tags.")] = "",
    skip_tags: Annotated[str, typer.Option(help="Not the steps with one of these tags.")] = "",
    format: FormatOption = Format.TEXT,
) -> None:
    """Show what a playbook would do, without touching any device.

    Example: testbed plan playbooks/failover.yaml --rack playbooks/racks/bench4.yaml
    """
    from testbed.cli.running import assignments, words
    from testbed.playbook.loader import load_playbook
    from testbed.playbook.plan import make_plan

    checked, on = load_playbook(
        playbook,
        assignments=assignments(assignment or []),
        vars_file=vars_file,
        rack=rack,
        mock=mock,
    )
    made = make_plan(checked, on, tags=words(tags), skip_tags=words(skip_tags))
    if format is Format.JSON:
        print_json(made.as_record())
        return
    from testbed.report.plans import render_plan

    render_plan(made.as_record(), [e.text for e in checked.expect], console())


def validate(
    paths: Annotated[list[Path], typer.Argument(help="Playbooks and rack files.")],
    rack: Annotated[
        str | None,
        typer.Option(
            "--rack",
            "-r",
            help="Check playbooks against this rack.",
            envvar="TESTBED_RACK",
            autocompletion=completion.racks,
        ),
    ] = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Check files in full; every fault is told with its place. Exit code 2 when there is any.

    Example: testbed validate playbooks/*.yaml playbooks/racks/*.yaml
    """
    from testbed.source.places import FileFaults

    faults: list[Diagnostic] = []
    for path in paths:
        try:
            _check(path, rack)
        except FileFaults as found:
            faults += found.diagnostics
    if format is Format.JSON:
        print_json([_record(fault) for fault in faults])
    else:
        for fault in faults:
            typer.echo(str(fault), err=True)
        count = len(faults)
        verdict = f"{count} fault{'s' if count != 1 else ''}" if count else "no faults"
        typer.echo(f"{len(paths)} file{'s' if len(paths) != 1 else ''}: {verdict}")
    raise typer.Exit(2 if faults else 0)


def _check(path: Path, rack: str | None) -> None:
    from testbed.playbook.loader import load_playbook
    from testbed.rack.loader import load_rack
    from testbed.rack.model import SCHEMA
    from testbed.source.reader import parse, read_text

    document = parse(read_text(path), str(path))
    value = document.value
    declared = value.get("schema") if isinstance(value, dict) else None
    is_rack = declared == SCHEMA or (isinstance(value, dict) and "devices" in value)
    if is_rack:
        load_rack(str(path) if path.parent != Path() else f"./{path}")
    else:
        load_playbook(path, rack=rack)


def _record(fault: Diagnostic) -> dict[str, Any]:
    return {
        "file": fault.place.file,
        "line": fault.place.line,
        "column": fault.place.column,
        "message": fault.message,
        "hint": fault.hint,
    }


def schema(
    kind: Annotated[Kind, typer.Argument(help="playbook or rack.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write.")] = None,
) -> None:
    """Print the JSON Schema of playbooks or rack files, for editors.

    Example: testbed schema playbook --output playbook.schema.json
    """
    if kind is Kind.PLAYBOOK:
        from testbed.playbook.schema import playbook_schema

        made = playbook_schema()
    else:
        from testbed.rack.schema import rack_schema

        made = rack_schema()
    if output is None:
        print_json(made)
        return
    from testbed.errors import StoreError

    try:
        output.write_text(json.dumps(made, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise StoreError(f"{output} cannot be written: {error.strerror}") from None
    typer.echo(f"written to {output}")
