"""``testbed run``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli import completion
from testbed.cli.options import (
    RESULTS,
    Format,
    FormatOption,
    MockOption,
    ResultsOption,
    WaitOption,
    console,
    print_json,
    seconds,
)
from testbed.cli.streams import silence

if TYPE_CHECKING:
    from rich.console import Console

    from testbed.engine.run import RunOutcome
    from testbed.store.reader import StoredRun


def run(
    playbook: Annotated[
        Path, typer.Argument(help="Playbook file.", autocompletion=completion.playbooks)
    ],
    rack: Annotated[
        str | None,
        typer.Option(
            "--rack",
            "-r",
            help="Rack file or built-in rack, instead of the playbook's own.",
            envvar="TESTBED_RACK",
            autocompletion=completion.racks,
        ),
    ] = None,
    mock: MockOption = False,
    assignment: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set a variable; may be repeated."),
    ] = None,
    vars_file: Annotated[
        Path | None, typer.Option("--vars", help="YAML file of variables; --set wins over it.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Counted trials per sweep point.")
    ] = None,
    warmup: Annotated[
        int | None, typer.Option(min=0, help="Warm-up trials per sweep point, not counted.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random draw.")] = 0,
    virtual_time: Annotated[
        bool,
        typer.Option("--virtual-time", help="Do not wait: mock devices only, same seed same run."),
    ] = False,
    tags: Annotated[
        str, typer.Option(help="Run only steps with one of these tags, comma-separated.")
    ] = "",
    skip_tags: Annotated[str, typer.Option(help="Leave out steps with one of these tags.")] = "",
    results: ResultsOption = RESULTS,
    keep_on_failure: Annotated[
        bool,
        typer.Option("--keep-on-failure", help="Leave a failed trial as it is, and stop there."),
    ] = False,
    wait: WaitOption = "0 s",
    recover_first: Annotated[
        bool, typer.Option("--recover-first", help="Bring a dirty rack back before the run.")
    ] = False,
    junit: Annotated[
        Path | None, typer.Option(help="Write the result as JUnit XML to this file.")
    ] = None,
    format: FormatOption = Format.TEXT,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show tasks and log lines as they come.")
    ] = False,
) -> None:
    """Run a playbook, store everything, and show where the time went.

    Exit code: 0 all expectations met, 1 one failed, 2 your files or arguments, 3 a device or the
    rack, 4 the rack is held, 70 a defect of ours, 130 interrupted (131: twice).

    Examples:

    testbed run playbooks/failover.yaml

    testbed run playbooks/failover-policies.yaml --trials 100 --virtual-time --seed 7

    testbed run playbooks/failover.yaml --rack my-rack.yaml --set spare=host2
    """
    from testbed.cli.progress import Progress
    from testbed.engine.paths import state_dir
    from testbed.engine.run import RunOptions, execute
    from testbed.playbook.loader import load_playbook

    wait_s = seconds(wait, "--wait")
    checked, on = load_playbook(
        playbook,
        assignments=assignments(assignment or []),
        vars_file=vars_file,
        rack=rack,
        mock=mock,
        trials=trials,
        warmup=warmup,
    )
    progress = Progress(console(stderr=True), checked, verbose=verbose, virtual=virtual_time)
    with progress:
        outcome = execute(
            RunOptions(
                playbook=checked,
                rack=on,
                state_dir=state_dir(),
                seed=seed,
                virtual=virtual_time,
                results_dir=results,
                tags=words(tags),
                skip_tags=words(skip_tags),
                keep_on_failure=keep_on_failure,
                wait_for_lease_s=wait_s,
                recover_first=recover_first,
                observers=(progress,),
            )
        )
    stored = None
    if outcome.folder is not None:
        from testbed.store.reader import open_run

        stored = open_run(outcome.folder)
    if stored is not None and junit is not None:
        from testbed.store.exports import export_run

        export_run(stored, "junit", junit, overwrite=True)
    # The verdict must reach the shell also when nobody reads the table (`| head`).
    try:
        _show(outcome, stored, format, rack or checked.rack)
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)
    raise typer.Exit(outcome.exit_code)


def _show(outcome: RunOutcome, stored: StoredRun | None, format: Format, rack: str) -> None:
    if stored is not None and format is Format.JSON:
        print_json(stored.summary())
    elif stored is not None:
        _show_text(stored, console())
    if outcome.error is not None and (stored is None or format is Format.JSON):
        typer.echo(f"{outcome.error.kind}: {outcome.error}", err=True)
    if outcome.dirty:
        names = ", ".join(outcome.dirty)
        typer.echo(f"not safe: {names}; bring back with: testbed recover --rack {rack}", err=True)


def _show_text(stored: StoredRun, to: Console) -> None:
    from testbed.report.tables import render_summary, render_sweep
    from testbed.report.waterfall import render_waterfall

    summary = stored.summary()
    phases = summary.get("phases", {})
    if len(summary.get("points", [])) > 1:
        render_sweep(summary, to)
    elif any(record.get("n") for record in phases.values()):
        render_waterfall(stored, to)
    render_summary(summary, to)
    to.print(f"\nstored in {stored.folder}", soft_wrap=True)


def assignments(given: list[str]) -> dict[str, str]:
    """Take ``--set`` options apart. :raises BadParameter: for one that is no assignment."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(
                f"{text!r} is no assignment; write name=value", param_hint="--set"
            )
        found[name.strip()] = value
    return found


def words(text: str) -> frozenset[str]:
    """The words of a comma-separated option."""
    return frozenset(word.strip() for word in text.split(",") if word.strip())
