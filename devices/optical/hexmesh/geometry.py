"""A hexagonal waveguide mesh: every edge of a patch of hexagons is a 2x2 gate, a *cell*.

An edge has two ends and two sides, so a cell has four *arms*, one for each end and side::

          side A                   bar:    light stays on its side
    end u ═══════ end v            cross:  light changes sides
          side B                   light always goes on to the other end

At each lattice vertex the arms of neighbouring edges that look at the same face are joined by a
waveguide. Where a vertex on the rim has two edges only, their two outer arms are free: these are
the optical ports of the mesh, numbered along the rim.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Hexagon = tuple[int, int]
Vertex = tuple[int, int]
OUTER: Hexagon = (10**6, 10**6)
"""The face around the patch."""

BENCH_ROWS = ((0, 7), (1, 6), (1, 5))
"""First column and length of each row of hexagons: 18 hexagons, 72 edges, 42 ports."""

BENCH_FIRST_PORT = 20
"""Where on the rim port 0 is. With this choice, and paths of at most 14 cells, every pair of the
bench's four servers can be linked by both their ports, as the published experiments need."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One of the four arms of a cell.

    :ivar cell: number of the cell.
    :ivar end: 0 or 1.
    :ivar side: 0 or 1, the same along the whole cell.
    """

    cell: int
    end: int
    side: int


@dataclass(frozen=True)
class HexMesh:
    """A mesh as it is built; states of its cells are kept elsewhere.

    :ivar cells: number of cells.
    :ivar joined: for every arm, the arm that its waveguide leads to; free arms are missing.
    :ivar ports: names of the ports, each with its free arm, in the order along the rim.
    """

    cells: int
    joined: Mapping[Arm, Arm]
    ports: Mapping[str, Arm]

    @functools.cached_property
    def port_at(self) -> Mapping[Arm, str]:
        """The port at each free arm."""
        return {arm: port for port, arm in self.ports.items()}

    @classmethod
    @functools.cache
    def bench(cls) -> HexMesh:
        """The mesh of the published bench, as modelled here: 72 cells, ports ``0`` to ``41``."""
        return cls.of_rows(BENCH_ROWS, first_port=BENCH_FIRST_PORT)

    @classmethod
    def of_rows(cls, rows: Iterable[tuple[int, int]], first_port: int = 0) -> HexMesh:
        """A mesh over rows of hexagons, each row half a hexagon to the right of the one before.

        :param rows: first column and number of hexagons of each row.
        :param first_port: which of the free arms, counted along the rim, is port ``0``.
        """
        hexagons = {
            (column, row)
            for row, (first, length) in enumerate(rows)
            for column in range(first, first + length)
        }
        return _build(hexagons, first_port)


def _corners(hexagon: Hexagon) -> list[Vertex]:
    """The six corners counter-clockwise, in units of half a hexagon's width and a quarter of its
    height, which makes them whole numbers."""
    column, row = hexagon
    x, y = 2 * column + row, 3 * row
    return [(x + 1, y + 1), (x, y + 2), (x - 1, y + 1), (x - 1, y - 1), (x, y - 2), (x + 1, y - 1)]


def _build(hexagons: set[Hexagon], first_port: int) -> HexMesh:
    faces: dict[tuple[Vertex, Vertex], list[Hexagon]] = {}
    for hexagon in sorted(hexagons):
        corners = _corners(hexagon)
        for one, other in zip(corners, [*corners[1:], corners[0]], strict=True):
            faces.setdefault((min(one, other), max(one, other)), []).append(hexagon)
    edges = sorted(faces)
    at_vertex: dict[Vertex, list[int]] = {}
    sides: list[tuple[Hexagon, Hexagon]] = []
    for number, edge in enumerate(edges):
        around = faces[edge]
        sides.append((around[0], around[1] if len(around) == 2 else OUTER))
        for vertex in edge:
            at_vertex.setdefault(vertex, []).append(number)
    joined: dict[Arm, Arm] = {}
    free: dict[Arm, Vertex] = {}
    for vertex, touching in at_vertex.items():
        for number in touching:
            end = edges[number].index(vertex)
            for side, face in enumerate(sides[number]):
                arm = Arm(number, end, side)
                if len(touching) == 2 and face == OUTER:
                    free[arm] = vertex
                    continue
                neighbour = next(n for n in touching if n != number and face in sides[n])
                other_end = edges[neighbour].index(vertex)
                joined[arm] = Arm(neighbour, other_end, sides[neighbour].index(face))
    return HexMesh(len(edges), joined, _numbered(free, edges, first_port))


def _numbered(
    free: Mapping[Arm, Vertex], edges: list[tuple[Vertex, Vertex]], first: int
) -> dict[str, Arm]:
    """Ports in the order of the angle at which they leave the patch."""
    count = len(free)
    middle_x = sum(v[0] for v in free.values()) / count
    middle_y = sum(v[1] for v in free.values()) / count

    def angle(arm: Arm) -> tuple[float, int]:
        # The two ports of a vertex are told apart by the edge that each belongs to.
        (x0, y0), (x1, y1) = edges[arm.cell]
        vertex = free[arm]
        x = vertex[0] + 0.1 * ((x0 + x1) / 2 - vertex[0])
        y = vertex[1] + 0.1 * ((y0 + y1) / 2 - vertex[1])
        return math.atan2((y - middle_y) * math.sqrt(3) / 3, x - middle_x), arm.cell

    around = sorted(free, key=angle)
    return {str(n): arm for n, arm in enumerate([*around[first:], *around[:first]])}
