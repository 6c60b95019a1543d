"""Twin of a programmable photonic mesh: circuits are paths of light through its cells.

Port shutters of the twin keep light out of every port that is not part of a circuit, so that
a path which the cells happen to make beside the asked ones carries none.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from devices.mock.state import Section
from devices.mock.switch import MockSwitch
from devices.optical.photonic_mesh import PhotonicMeshOptions
from testbed.errors import DeviceRefused
from testbed.hal.registry import DriverContext
from testbed.hal.types import CellState, Circuit, Identity, Port
from testbed.timing.alarm import sleep

ROUTES_KEPT = 256
"""Routed sets of circuits that are remembered: a route costs milliseconds, and experiments ask
for the same few sets again and again."""

Cells = tuple[CellState, ...]


class MeshOptics(Protocol):
    """What the twin asks of a model of the mesh."""

    def route(self, circuits: Collection[Circuit]) -> Cells:
        """Cell states that make all circuits. :raises ValueError: saying why, if none do."""

    def paths(self, cells: Cells) -> Mapping[Port, tuple[Port, int]]:
        """Per port, where light that enters there leaves, and after how many cells."""


class MockPhotonicMesh(MockSwitch):
    """A mesh whose circuits are routed over its cells.

    :param optics: the model of the mesh; by default the hexagonal one.
    """

    def __init__(
        self,
        name: str,
        options: PhotonicMeshOptions,
        context: DriverContext,
        optics: MeshOptics | None = None,
    ) -> None:
        super().__init__(name, options, context)
        self.options = options
        if optics is None:
            from devices.mock.hexagonal import HexagonalOptics

            optics = HexagonalOptics(options.cells)
        self._optics = optics
        self._cells: Cells = (CellState.BAR,) * options.cells
        self._paths = optics.paths(self._cells)
        self._routes: OrderedDict[frozenset[Circuit], Cells] = OrderedDict()

    def identity(self) -> Identity:
        return Identity("testbed", f"mock mesh {self.options.cells}", self.name)

    def loss_db(self, circuit: Circuit) -> float:
        """Coupling, and each cell that the light crosses."""
        return self.options.coupling_loss + self.options.cell_loss * self._paths[circuit.ingress][1]

    # --- OpticalSwitch ---------------------------------------------------------------------

    async def check(self, target: Collection[Circuit], *, changing: Collection[Circuit]) -> None:
        """Refuse, beyond what every switch refuses, circuits that no cell states make."""
        await super().check(target, changing=changing)
        if changing:
            self._route(frozenset(target))

    def _route(self, circuits: frozenset[Circuit]) -> Cells:
        cells = self._routes.get(circuits)
        if cells is None:
            try:
                cells = self._optics.route(circuits)
            except ValueError as error:
                raise DeviceRefused(
                    f"switch {self.name}: no route for all of "
                    f"{', '.join(map(str, sorted(circuits)))}: {error}; nothing was sent",
                    device=self.name,
                    operation="apply",
                    remedy="ask for fewer circuits, or for other ports",
                ) from error
            self._routes[circuits] = cells
            if len(self._routes) > ROUTES_KEPT:
                self._routes.popitem(last=False)
        return cells

    def tell_change(self, remove: Sequence[Circuit], add: Sequence[Circuit]) -> None:
        super().tell_change(remove, add)
        if add:
            self._set_cells(self._route(self.told))

    def guide_change(
        self, remove: Sequence[Circuit], add: Sequence[Circuit], *, moves: int
    ) -> float:
        busy_s = super().guide_change(remove, add, moves=moves)
        self.look_again()  # circuits that stay may have been led another way
        return busy_s

    def _set_cells(self, cells: Cells) -> None:
        if cells != self._cells:
            self._cells = cells
            self._paths = self._optics.paths(cells)

    # --- MeshSwitch ------------------------------------------------------------------------

    async def cells(self) -> Sequence[CellState]:
        return await self.exchange("cells", lambda: self._cells)

    async def program(self, states: Sequence[CellState]) -> None:
        """Set all cells. Circuits are then what the cells make of the light that comes in:
        from ports with a fibre from a transmitter to ports with one to a receiver."""
        wanted = tuple(CellState(state) for state in states)
        if len(wanted) != self.options.cells:
            raise DeviceRefused(
                f"switch {self.name} has {self.options.cells} cells, and {len(wanted)} states "
                "were given; nothing was sent",
                device=self.name,
                operation="program",
            )
        half = wanted[: len(wanted) // 2] + self._cells[len(wanted) // 2 :]
        busy_s = await self.exchange(
            "program",
            lambda: self._program(wanted),
            half=lambda: self._program(half),
            lie=lambda: 0.0,
        )
        await sleep(busy_s)

    def _program(self, cells: Cells) -> float:
        before = self.told
        self._set_cells(cells)
        after = {
            Circuit(port, self._paths[port][0])
            for port in self.light.into
            if port in self._paths and self._paths[port][0] in self.light.out_of
        }
        # All cells were driven anew: what stays was dark for a moment as well.
        super().tell_change(sorted(before), sorted(after))
        return super().guide_change(sorted(before), sorted(after), moves=1)

    # --- state file ------------------------------------------------------------------------

    def snapshot(self) -> Section:
        cells = "".join("x" if c is CellState.CROSS else "=" for c in self._cells)
        return {**super().snapshot(), "cells": cells}

    def restore(self, section: Section) -> None:
        states = {"x": CellState.CROSS, "=": CellState.BAR}
        cells = tuple(states[c] for c in section["cells"])
        if len(cells) != self.options.cells:
            raise ValueError(f"{len(cells)} cells, and {self.name} has {self.options.cells}")
        self._set_cells(cells)
        super().restore(section)
