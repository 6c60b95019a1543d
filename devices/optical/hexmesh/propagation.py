"""Where light goes through a mesh whose cells are all in bar or cross state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from devices.optical.hexmesh.geometry import Arm, HexMesh
from testbed.hal.types import CellState


@dataclass(frozen=True, slots=True)
class Arrival:
    """Where light leaves the mesh.

    :ivar port: the port.
    :ivar cells: the cells that it has crossed, in order; a cell may be crossed twice.
    """

    port: str
    cells: tuple[int, ...]


def propagate(mesh: HexMesh, states: Sequence[CellState], ingress: str) -> Arrival:
    """Follow light from a port.

    Gates neither reflect nor split, so light always leaves: each step is one of a permutation of
    arms, and a path that came back to where it entered would need a gate that turns it round.

    :raises KeyError: when there is no such port.
    """
    arm: Arm | None = mesh.ports[ingress]
    crossed: list[int] = []
    while arm is not None:
        crossed.append(arm.cell)
        leaving = through(arm, states[arm.cell])
        if leaving in mesh.port_at:
            return Arrival(mesh.port_at[leaving], tuple(crossed))
        arm = mesh.joined.get(leaving)
    raise AssertionError("an arm is neither joined nor a port")  # pragma: no cover


def through(arm: Arm, state: CellState) -> Arm:
    """The arm by which light leaves a cell that it has entered by ``arm``."""
    side = arm.side if state is CellState.BAR else 1 - arm.side
    return Arm(arm.cell, 1 - arm.end, side)
