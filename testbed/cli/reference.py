"""The reference of all commands, made from the commands themselves.

``python -m testbed.cli.reference docs/reference/commands.md`` writes it; a test says when it is out
of date.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from testbed.cli.app import app

_INTRODUCTION = """\
# Commands

Made by `python -m testbed.cli.reference docs/reference/commands.md`; do not edit.

Data goes to standard output, progress and messages to standard error, so that `--format json` is
one JSON document and nothing else. Whatever comes from a simulated device says `mock`.

| exit code | meaning |
|---|---|
| 0 | done; all expectations met |
| 1 | an expectation failed, or a rule of `results compare --fail-if` holds |
| 2 | your files or arguments |
| 3 | a device or the rack |
| 4 | the rack is held by somebody else |
| 70 | a defect of the testbed |
| 130, 131 | interrupted once; twice, with cleanup left out |
| 141 | nobody read the output to its end |

`host run` ends with the exit status of the command that it ran.

`--debug` shows tracebacks; it may stand anywhere before a `--`.
"""

_EVERYWHERE = {"help", "install_completion", "show_completion"}


def reference() -> str:
    """All commands as one page of Markdown."""
    parts = [_INTRODUCTION]
    for path, command in _commands(typer.main.get_command(app), ()):
        parts.append(_section(path, command))
    return "\n".join(parts)


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
        return
    for name, child in children.items():
        yield from _commands(child, (*path, name))


def _section(path: tuple[str, ...], command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    options = [p for p in options if p.name not in _EVERYWHERE]
    usage = ["testbed", *path, *map(_usage, arguments), *(["[OPTIONS]"] if options else [])]
    lines = [f"## testbed {' '.join(path)}", "", f"`{' '.join(usage)}`", ""]
    lines += [_prose(command.help or ""), ""]
    if arguments or options:
        lines += ["| | | default |", "|---|---|---|"]
        lines += [_row(_usage(p).strip("[]"), p) for p in arguments]
        lines += [_row(", ".join(p.opts), p) for p in options]
        lines.append("")
    return "\n".join(lines)


def _usage(argument: Any) -> str:
    name = argument.name.upper() + ("…" if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"


def _prose(text: str) -> str:
    """The help text, with its examples as code."""
    lines = []
    for line in inspect.cleandoc(text).splitlines():
        label, colon, example = line.partition("Example: ")
        if colon and not label:
            lines.append(f"Example: `{example}`")
        elif line.startswith("testbed "):
            lines.append(f"`{line}`")
        else:
            lines.append(line)
    return "\n".join(lines)


def _row(names: str, parameter: Any) -> str:
    variable = f" Environment: `{parameter.envvar}`." if parameter.envvar else ""
    default = parameter.default
    shown = "" if default is None or isinstance(default, bool) or callable(default) else default
    text = f"{(parameter.help or '').strip()}{variable}".replace("|", "\\|")
    return f"| `{names}` | {text} | {f'`{shown}`' if str(shown) else ''} |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference(), "utf-8")
