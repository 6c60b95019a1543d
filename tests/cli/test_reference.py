"""The reference of the commands is made from the commands."""

from pathlib import Path

import typer.main

from testbed.cli.app import app
from testbed.cli.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"


def test_the_page_is_current():
    assert PAGE.read_text("utf-8") == reference(), "run the command that its first line names"


def test_no_command_is_left_out():
    def leaves(command, path=()):
        children = getattr(command, "commands", None)
        if not children:
            yield " ".join(path)
        for name, child in (children or {}).items():
            yield from leaves(child, (*path, name))

    text = reference()
    for name in leaves(typer.main.get_command(app)):
        assert f"## testbed {name}\n" in text
    assert text.count("Example") == text.count("## testbed ")
