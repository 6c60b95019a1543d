"""The hexagonal mesh as the mesh twin uses it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache

from devices.optical.hexmesh import HexMesh, Router, Routing, propagate
from testbed.hal.types import CellState, Circuit, Port


class HexagonalOptics:
    """Satisfies :class:`devices.mock.photonic_mesh.MeshOptics`.

    Circuits that were routed before keep their paths when others come or go, as long as a
    routing with them exists: their light is not disturbed.

    :param cells: number of cells; the one geometry modelled here has 72.
    """

    def __init__(self, cells: int) -> None:
        mesh, self._router = _bench()
        if cells != mesh.cells:
            raise ValueError(f"the modelled mesh has {mesh.cells} cells, not {cells}")
        self._mesh = mesh
        self._last: Routing | None = None

    def route(self, circuits: Collection[Circuit]) -> tuple[CellState, ...]:
        """Cell states that make all circuits. :raises ValueError: saying why, if none do."""
        try:
            routing = self._router.route(circuits, keep=self._last)
        except ValueError:
            if self._last is None:
                raise
            routing = self._router.route(circuits)  # the kept paths may be what is in the way
        self._last = routing
        return routing.states

    def paths(self, cells: tuple[CellState, ...]) -> Mapping[Port, tuple[Port, int]]:
        """Per port, where light that enters there leaves, and after how many cells."""
        arrivals = {port: propagate(self._mesh, cells, port) for port in self._mesh.ports}
        return {port: (a.port, len(a.cells)) for port, a in arrivals.items()}


@lru_cache(maxsize=1)
def _bench() -> tuple[HexMesh, Router]:
    """One mesh and one router for all twins: listing paths takes longest, and is kept."""
    mesh = HexMesh.bench()
    return mesh, Router(mesh)
