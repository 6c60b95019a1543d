"""Printing that works everywhere: colour or none, 80 columns or more, UTF-8 or ASCII.

Renderers write with the right signs (µ, ×, →, █); where the terminal's encoding cannot hold
them, the nearest ASCII is printed instead. Texts of users are never read as markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

Justify = Literal["left", "right"]

_ASCII = str.maketrans(
    {
        "µ": "u", "×": "x", "→": "->", "–": "-", "—": "-", "…": "...", "·": "-", "±": "+-",
        "█": "#", "│": "|", "▏": "|", "✓": "ok", "✗": "FAILED",
    }
)  # fmt: skip

# As rich's SIMPLE_HEAD, in ASCII.
_ASCII_HEAD = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
_GAP = 3  # columns are padded by one on both sides, and parted by one

STATUS_STYLES = {
    "passed": "green",
    "failed": "red",
    "error": "red",
    "interrupted": "yellow",
    "unfinished": "yellow",
    "unreadable": "red",
    "running": "cyan",
}


def is_ascii(console: Console) -> bool:
    """Whether the terminal's encoding cannot hold the signs of our texts."""
    return not console.encoding.lower().replace("-", "").startswith("utf")


def words(console: Console, text: str) -> str:
    """The text in signs that the terminal can show."""
    if not is_ascii(console):
        return text
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode()


def line(console: Console, text: str = "", *, style: str = "", indent: int = 0) -> None:
    """Print a sentence, wrapped at words, later lines indented like the first."""
    margin = " " * indent
    room = max(20, console.width - indent)
    for part in Text(words(console, text)).wrap(console, room):
        part.rstrip()
        console.print(Text(margin) + part, style=style, highlight=False, soft_wrap=True)


def table(
    console: Console,
    title: str,
    columns: Sequence[tuple[str, Justify]],
    rows: Iterable[Sequence[str | Text]],
    *,
    spare: Sequence[str] = (),
) -> None:
    """Print a table.

    :param spare: columns to leave out, in this order, until the rest fits the terminal; the
        reader is told. Cells fold only when nothing more can be spared.
    """
    names = [name for name, _ in columns]
    cells = [[_cell(console, cell) for cell in row] for row in rows]
    widths = {
        name: max([len(words(console, name)), *(row[place].cell_len for row in cells)])
        for place, name in enumerate(names)
    }
    left_out: list[str] = []
    for name in spare:
        if sum(widths.values()) + _GAP * (len(widths) - 1) <= console.width:
            break
        del widths[name]
        left_out.append(name)
    grid = Table(
        box=_ASCII_HEAD if is_ascii(console) else box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1),
        header_style="bold",
    )
    kept = [place for place, name in enumerate(names) if name in widths]
    for place in kept:
        name, justify = columns[place]
        grid.add_column(Text(words(console, name)), justify=justify, overflow="fold")
    for row in cells:
        grid.add_row(*(row[place] for place in kept))
    console.print()
    if title:
        line(console, title, style="bold")
    console.print(grid, highlight=False)
    if left_out:
        line(console, f"Too narrow for: {', '.join(left_out)}.", style="dim")


def _cell(console: Console, cell: str | Text) -> Text:
    if isinstance(cell, str):
        return Text(words(console, cell))
    return Text(words(console, cell.plain), style=cell.style)


def origin_label(backend: str, virtual: bool) -> str:
    """Where values come from, as every table says it."""
    return f"{backend} backend, {'virtual' if virtual else 'real'} time"


def plural(count: int, noun: str) -> str:
    """``1 trial``, ``2 trials``."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def status_text(status: str) -> Text:
    """A status in its colour."""
    return Text(status, style=STATUS_STYLES.get(status, ""))
