"""``testbed results`` and ``testbed report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from testbed.cli import completion
from testbed.cli.options import (
    RESULTS,
    Format,
    FormatOption,
    ResultsOption,
    console,
    print_json,
)

app = typer.Typer(
    help="Stored runs. Example: testbed results show latest",
    no_args_is_help=True,
)
RunArgument = Annotated[
    str,
    typer.Argument(
        help="Run id, a unique beginning of one, 'latest', or a run's folder.",
        autocompletion=completion.runs,
    ),
]


@app.command("list")
def list_runs(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 20,
    playbook: Annotated[str | None, typer.Option(help="Only runs of this playbook.")] = None,
    status: Annotated[str | None, typer.Option(help="Only runs with this status.")] = None,
    results: ResultsOption = RESULTS,
    format: FormatOption = Format.TEXT,
) -> None:
    """List runs, the newest first.

    Example: testbed results list --playbook lumion-failover --status passed
    """
    from testbed.report.results import list_runs as listed
    from testbed.report.tables import render_runs

    rows = listed(results, limit=limit, playbook=playbook, status=status, notice=_notice)
    if format is Format.JSON:
        print_json(rows)
    else:
        render_runs(rows, console())


@app.command()
def show(
    run: RunArgument = "latest",
    trial: Annotated[int | None, typer.Option(min=0, help="One trial alone.")] = None,
    point: Annotated[int | None, typer.Option(min=0, help="One sweep point alone.")] = None,
    results: ResultsOption = RESULTS,
    format: FormatOption = Format.TEXT,
) -> None:
    """Show a run: waterfall, measures, expectations.

    Example: testbed results show latest --format json
    """
    from testbed.report.results import find_point, find_run, find_trial
    from testbed.report.tables import render_summary, render_sweep
    from testbed.report.waterfall import render_waterfall

    found = find_run(results, run)
    summary = found.summary()
    if format is Format.JSON:
        if trial is not None:
            print_json(find_trial(found, trial))
        elif point is not None:
            print_json(find_point(found, point))
        else:
            print_json(summary)
        return
    out = console()
    one = trial is not None or point is not None
    if one or len(summary["points"]) <= 1:
        render_waterfall(found, out, trial=trial, point=point)
    else:
        render_sweep(summary, out)
    if not one:
        render_summary(summary, out)


@app.command()
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(help="The base run, then runs to compare.", autocompletion=completion.runs),
    ],
    fail_if: Annotated[
        list[str] | None,
        typer.Option("--fail-if", help="Rule, as 'recovery.median > 1.1x'; exit 1 when it holds."),
    ] = None,
    across_backends: Annotated[
        bool, typer.Option("--across-backends", help="Compare mock, emulated and real anyway.")
    ] = False,
    results: ResultsOption = RESULTS,
    format: FormatOption = Format.TEXT,
) -> None:
    """Compare runs: ratios with intervals, and what can be claimed.

    Example: testbed results compare BASE latest --fail-if 'recovery.median > 1.1x'
    """
    from testbed.report.comparisons import render_comparison, render_rules
    from testbed.report.results import compare_runs, comparison_record

    if len(runs) < 2:
        raise typer.BadParameter("name two runs or more", param_hint="RUNS")
    comparisons, rules = compare_runs(
        results, runs, rules=fail_if or [], across_backends=across_backends
    )
    if format is Format.JSON:
        print_json(comparison_record(comparisons, rules))
    else:
        out = console()
        for comparison in comparisons:
            render_comparison(comparison, out)
        render_rules(rules, out)
    raise typer.Exit(1 if any(rule.failed for rule in rules) else 0)


@app.command()
def export(
    run: RunArgument = "latest",
    as_format: Annotated[
        str, typer.Option("--as", help="csv, parquet, json, junit or chrome.")
    ] = "csv",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    results: ResultsOption = RESULTS,
) -> None:
    """Write a run in another format.

    Example: testbed results export latest --as chrome --output trace.json
    """
    from testbed.report.results import export as exported

    record = exported(results, run, as_format, output, overwrite=force)
    typer.echo(f"written to {record['path']}")


@app.command()
def rebuild(results: ResultsOption = RESULTS) -> None:
    """Make the index of runs again from their folders.

    Example: testbed results rebuild
    """
    from testbed.report.results import rebuild as rebuilt

    record = rebuilt(results)
    typer.echo(f"{record['runs']} runs in {record['results']}")


@app.command()
def repair(
    runs: Annotated[list[str] | None, typer.Argument(help="Runs; all unfinished ones.")] = None,
    results: ResultsOption = RESULTS,
) -> None:
    """Close runs whose controller died, so that they read as ended.

    Example: testbed results repair
    """
    from testbed.report.results import repair_runs

    done = repair_runs(results, runs or ())
    for record in done:
        typer.echo(", ".join(f"{key} {value}" for key, value in record.items()))
    if not done:
        typer.echo("nothing to repair")


def report(
    run: RunArgument = "latest",
    results: ResultsOption = RESULTS,
) -> None:
    """Print the full report of a run on the terminal.

    Example: testbed report latest
    """
    show(run, None, None, results, Format.TEXT)


def _notice(text: str) -> None:
    typer.echo(text, err=True)
