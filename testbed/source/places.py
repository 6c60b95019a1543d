"""Places in users' files, and diagnostics that name them."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.errors import PlaybookError


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place in a file; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True, order=True)
class Diagnostic:
    """One fault of a file.

    :param place: where it is.
    :param message: what is wrong, in one sentence.
    :param excerpt: the offending line as written.
    :param hint: what is allowed, or what was probably meant.
    """

    place: Place
    message: str
    excerpt: str = ""
    hint: str = ""

    def __str__(self) -> str:
        lines = [f"{self.place}: {self.message}"]
        if self.excerpt:
            excerpt, column = self.excerpt.rstrip(), self.place.column
            lines.append(f"    {excerpt}")
            if column <= len(self.excerpt) + 1:
                # Tabs stay tabs, so that the mark stands under what it means.
                before = "".join("\t" if c == "\t" else " " for c in excerpt[: column - 1])
                lines.append("    " + before.ljust(column - 1) + "^")
        if self.hint:
            lines.append(f"    {self.hint}")
        return "\n".join(lines)


class FileFaults(PlaybookError):
    """All faults of one or more files, in order of place."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        self.diagnostics = sorted(set(diagnostics))
        count = len(self.diagnostics)
        super().__init__(
            "\n".join(str(d) for d in self.diagnostics)
            + f"\n{count} fault{'s' if count != 1 else ''} found; nothing was run",
            diagnostics=[
                {"place": str(d.place), "message": d.message, "hint": d.hint}
                for d in self.diagnostics
            ],
        )
