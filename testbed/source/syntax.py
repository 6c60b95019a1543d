"""What YAML's own parser complains about, in words that say what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

_WORDS: tuple[tuple[str, str, str], ...] = (
    (
        "did not find expected key",
        "this line is indented unlike the lines that it belongs to",
        "give keys and list items of one level the same indentation",
    ),
    (
        "did not find expected '-' indicator",
        "a list goes on with something that is no list item",
        "begin each item with - at the same indentation",
    ),
    (
        "did not find expected ','",
        "a bracket is not closed, or a comma is missing before this",
        "close [ with ], { with }, and put commas between items",
    ),
    (
        "mapping values are not allowed",
        "a colon and a space within a value look like another key",
        "quote the value, or put the key in a line of its own",
    ),
    (
        "could not find expected ':'",
        "this line is neither a key with its value nor a list item",
        "write key: value",
    ),
    (
        "block sequence entries are not allowed",
        "a list item cannot begin here",
        "put - in a line of its own",
    ),
    (
        "found character that cannot start any token",
        "a value cannot begin with this character",
        "quote the value",
    ),
    (
        "found undefined alias",
        "this alias (*name) refers to an anchor (&name) that is not there",
        "quote the value if no alias is meant",
    ),
    (
        "exceeded maximum nesting depth",
        "the file is nested too deeply",
        "is it the right one?",
    ),
    (
        "found duplicate anchor",
        "this anchor (&name) is defined already",
        "give it another name",
    ),
    (
        "escape character",
        "a backslash in double quotes is followed by what it cannot be",
        "use single quotes, or write \\\\ for a backslash",
    ),
)


@dataclass(frozen=True, slots=True)
class SyntaxFault:
    """Where and why the text is no YAML; lines and columns count from 1."""

    line: int
    column: int
    message: str
    hint: str


def explain(error: yaml.YAMLError, text: str) -> SyntaxFault:
    """The parser's error in our words."""
    position = getattr(error, "position", None)
    if not hasattr(error, "problem_mark") and isinstance(position, int):
        line, column = _line_and_column(text, position)
        return SyntaxFault(
            line, column, "not valid YAML: a character that text files do not have", "remove it"
        )
    problem = str(getattr(error, "problem", None) or "not readable")
    context = str(getattr(error, "context", None) or "")
    mark: Any = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    begun: Any = getattr(error, "context_mark", None)
    message, hint = f"not valid YAML: {problem}", ""
    if "single document" in context:
        message, hint = "a second document begins here", "keep one document in a file"
    elif "end of stream" in problem and begun is not None:
        mark, message, hint = begun, "this quote is never closed", "close it on the same line"
    else:
        for beginning, words, remedy in _WORDS:
            if beginning in problem:
                message, hint = f"not valid YAML: {words}", remedy
                break
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    lines = text.splitlines()
    excerpt = lines[line - 1] if line <= len(lines) else ""
    if "\t" in excerpt[: len(excerpt) - len(excerpt.lstrip())]:
        message = "not valid YAML: there is a tab in the indentation"
        hint = "indent with spaces"
    elif "{{" in excerpt and '"' not in excerpt and "'" not in excerpt:
        hint = 'quote expressions: "{{ name }}"'
    return SyntaxFault(line, column, message, hint)


def _line_and_column(text: str, position: int) -> tuple[int, int]:
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1
