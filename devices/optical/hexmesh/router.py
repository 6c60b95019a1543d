"""Routes circuits over a mesh: which cells must be in bar, and which in cross.

Two circuits may cross the same cell if it is in the same state for both; light of different
ports can then never meet on one waveguide in one direction, because a mesh with given states is a
permutation of its ports. So circuits are compatible exactly when they ask no cell for both states,
and routing is a choice of one path per circuit. All paths up to the limit of length are listed
(there are two ways on at each cell, and ways that cannot reach the egress in time are cut off),
and the choice is an exact search: "no route" is a proof, unless the search says that it gave up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from devices.optical.hexmesh.geometry import Arm, HexMesh
from devices.optical.hexmesh.propagation import through
from testbed.hal.types import CellState, Circuit

MAX_CELLS = 14
"""Longest path, in cells, as on the published bench."""

MAX_CHOICES = 20_000
"""Choices that are tried before the search gives up."""

Demand = tuple[int, int]
"""Cells wanted in bar, and cells wanted in cross, as bits."""


class NoRouteError(ValueError):
    """Circuits that cannot be routed together; the message says why."""


@dataclass(frozen=True, slots=True)
class Route:
    """One path: the cells it crosses in order, and what it asks of them."""

    circuit: Circuit
    cells: tuple[int, ...]
    demand: Demand


@dataclass(frozen=True)
class Routing:
    """A choice of paths, and the cell states that make them.

    :ivar states: one for each cell; those that no path asks for are in bar.
    """

    routes: Mapping[Circuit, Route]
    states: tuple[CellState, ...]


class Router:
    """Routes over one mesh; paths of a circuit are listed once and kept.

    :param max_cells: longest path allowed, in cells.
    """

    def __init__(self, mesh: HexMesh, max_cells: int = MAX_CELLS) -> None:
        self.mesh = mesh
        self.max_cells = max_cells
        self._paths: dict[Circuit, tuple[Route, ...]] = {}
        self._distances: dict[str, Mapping[Arm, int]] = {}

    def route(self, circuits: Collection[Circuit], keep: Routing | None = None) -> Routing:
        """Cell states that make all circuits, with short paths preferred.

        :param keep: a routing whose paths for those of the circuits that it has are left exactly
            as they are, so that their light is not touched.
        :raises NoRouteError: when there are none, or the search gave up.
        """
        kept = {c: r for c, r in keep.routes.items() if c in circuits} if keep else {}
        fixed = (0, 0)
        for route in kept.values():
            fixed = _join(fixed, route.demand)
        open_circuits = sorted(set(circuits) - kept.keys())
        candidates = {c: self.paths(c) for c in open_circuits}
        for circuit, paths in candidates.items():
            if not paths:
                raise NoRouteError(f"{circuit} has no path of at most {self.max_cells} cells")
            candidates[circuit] = _fitting(paths, fixed)
            if not candidates[circuit]:
                raise NoRouteError(f"every path of {circuit} is blocked by circuits that are kept")
        chosen = _Search(MAX_CHOICES).choose(candidates, fixed)
        if isinstance(chosen, str):
            raise NoRouteError(chosen)
        routes = {**kept, **chosen}
        cross = 0
        for route in routes.values():
            cross |= route.demand[1]
        states = tuple(
            CellState.CROSS if cross >> cell & 1 else CellState.BAR
            for cell in range(self.mesh.cells)
        )
        return Routing(routes, states)

    def paths(self, circuit: Circuit) -> tuple[Route, ...]:
        """All paths of a circuit up to the limit, the shortest first.

        :raises NoRouteError: for a port that the mesh does not have.
        """
        if circuit not in self._paths:
            for port in (circuit.ingress, circuit.egress):
                if port not in self.mesh.ports:
                    raise NoRouteError(f"the mesh has no port {port}")
            found = sorted(self._walk(circuit), key=lambda route: (len(route.cells), route.cells))
            self._paths[circuit] = tuple(found)
        return self._paths[circuit]

    def _walk(self, circuit: Circuit) -> Iterator[Route]:
        distances = self._cells_to(circuit.egress)
        target = self.mesh.ports[circuit.egress]
        stack: list[tuple[Arm, tuple[int, ...], int, int]] = [
            (self.mesh.ports[circuit.ingress], (), 0, 0)
        ]
        while stack:
            arm, crossed, bar, cross = stack.pop()
            if len(crossed) + distances.get(arm, self.max_cells + 1) > self.max_cells:
                continue
            bit = 1 << arm.cell
            cells = (*crossed, arm.cell)
            for state in (CellState.CROSS, CellState.BAR):
                wants_bar = state is CellState.BAR
                if (cross if wants_bar else bar) & bit:
                    continue  # this path has asked for the other state before
                demand = (bar | bit, cross) if wants_bar else (bar, cross | bit)
                leaving = through(arm, state)
                if leaving == target:
                    yield Route(circuit, cells, demand)
                elif leaving in self.mesh.joined:
                    stack.append((self.mesh.joined[leaving], cells, *demand))

    def _cells_to(self, egress: str) -> Mapping[Arm, int]:
        """For each arm that light enters a cell by, the least number of cells to the egress."""
        if egress not in self._distances:
            entering: dict[Arm, int] = {}
            queue: deque[tuple[Arm, int]] = deque([(self.mesh.ports[egress], 1)])
            while queue:
                leaving, cells = queue.popleft()
                for state in CellState:
                    arm = through(leaving, state)  # a cell works alike in both directions
                    if arm in entering:
                        continue
                    entering[arm] = cells
                    before = self.mesh.joined.get(arm)
                    if before is not None:
                        queue.append((before, cells + 1))
            self._distances[egress] = entering
        return self._distances[egress]


class _Search:
    """Chooses one path per circuit, the circuit with the fewest left first."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._blocked: Circuit | None = None

    def choose(
        self, candidates: Mapping[Circuit, Sequence[Route]], fixed: Demand
    ) -> dict[Circuit, Route] | str:
        """The choice, or why there is none."""
        chosen = self._extend(candidates, fixed)
        if chosen is not None:
            return chosen
        if self._budget <= 0:
            return f"no routing found for all of them within {MAX_CHOICES} choices"
        return f"the circuits cannot all be led at once; {self._blocked} is in the way of others"

    def _extend(
        self, candidates: Mapping[Circuit, Sequence[Route]], taken: Demand
    ) -> dict[Circuit, Route] | None:
        if not candidates:
            return {}
        circuit = min(candidates, key=lambda c: (len(candidates[c]), c))
        others = {c: paths for c, paths in candidates.items() if c != circuit}
        for route in candidates[circuit]:
            self._budget -= 1
            if self._budget < 0:
                return None
            demand = _join(taken, route.demand)
            left = {c: _fitting(paths, demand) for c, paths in others.items()}
            if not all(left.values()):
                self._blocked = circuit
                continue
            rest = self._extend(left, demand)
            if rest is not None:
                return {circuit: route, **rest}
        return None


def _fitting(paths: Sequence[Route], taken: Demand) -> tuple[Route, ...]:
    bar, cross = taken
    return tuple(r for r in paths if not (r.demand[0] & cross or r.demand[1] & bar))


def _join(one: Demand, other: Demand) -> Demand:
    return one[0] | other[0], one[1] | other[1]
