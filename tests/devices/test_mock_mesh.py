"""Twin of a photonic mesh, over a toy model of its optics: a crossed cell ``n`` leads light from
port ``n`` to port ``n + 1`` through ``n + 1`` cells, a barred one back to where it came from."""

import pytest
import trio

from devices.mock.photonic_mesh import ROUTES_KEPT, MockPhotonicMesh
from devices.optical.photonic_mesh import PhotonicMeshOptions
from testbed.errors import DeviceRefused, StateMismatch
from testbed.hal.capabilities import MeshSwitch, OpticalSwitch
from testbed.hal.registry import DriverContext
from testbed.hal.types import CellState, Circuit, FaultSpec
from testbed.hal.wiring import Endpoint, Fibre, SwitchPort, Wiring
from testbed.timing.clock import run

BAR, CROSS = CellState.BAR, CellState.CROSS
WIRING = Wiring(
    (
        Fibre(Endpoint("host0", "p0"), SwitchPort("mesh", "12"), True),
        Fibre(Endpoint("host1", "p0"), SwitchPort("mesh", "13"), False),
        Fibre(Endpoint("host1", "p0"), SwitchPort("mesh", "20"), True),
        Fibre(Endpoint("host0", "p0"), SwitchPort("mesh", "21"), False),
    )
)
THERE, BACK = Circuit("12", "13"), Circuit("20", "21")


class ToyOptics:
    def __init__(self):
        self.routed = 0

    def route(self, circuits):
        self.routed += 1
        cells = [BAR] * 72
        for circuit in circuits:
            if int(circuit.egress) != int(circuit.ingress) + 1:
                raise ValueError(f"{circuit} is no neighbour")
            cells[int(circuit.ingress)] = CROSS
        return tuple(cells)

    def paths(self, cells):
        return {
            str(n): (str(n + 1), n + 1) if cells[n] is CROSS else (str(n), 1) for n in range(37)
        }


def on_mesh(scenario, optics=None):
    async def main():
        context = DriverContext("r", WIRING, virtual=True)
        mesh = MockPhotonicMesh(
            "mesh", PhotonicMeshOptions(cell_loss=0.1), context, optics or ToyOptics()
        )
        await mesh.open()
        try:
            await scenario(mesh)
        finally:
            await mesh.close()

    run(main, virtual=True)


def test_circuits_become_cells_and_light():
    async def scenario(mesh):
        assert isinstance(mesh, MeshSwitch) and isinstance(mesh, OpticalSwitch)
        assert set(await mesh.cells()) == {BAR}
        report = await mesh.apply({THERE, BACK})
        assert report.light_checked
        assert [n for n, c in enumerate(await mesh.cells()) if c is CROSS] == [12, 20]
        power = await mesh.port_power_dbm(["12", "13", "20", "21"])
        assert power["12"] - power["13"] == pytest.approx(3.0 + 13 * 0.1)
        assert power["20"] - power["21"] == pytest.approx(3.0 + 21 * 0.1)

    on_mesh(scenario)


def test_what_cannot_be_routed_is_refused_before_anything_is_sent():
    async def scenario(mesh):
        await mesh.apply({THERE})
        cells = await mesh.cells()
        with pytest.raises(DeviceRefused, match="20>22 is no neighbour; nothing was sent"):
            await mesh.apply({THERE, Circuit("20", "22")})
        assert await mesh.cells() == cells
        assert await mesh.circuits() == {THERE}

    on_mesh(scenario)


def test_programming_cells_makes_circuits_between_fibres_only():
    async def scenario(mesh):
        states = [CROSS] * 72
        await mesh.program(states)
        await trio.sleep(1)
        assert await mesh.circuits() == {THERE, BACK}
        assert (await mesh.port_power_dbm(["13"]))["13"] > -20
        await mesh.program([BAR] * 72)
        assert await mesh.circuits() == frozenset()
        assert (await mesh.port_power_dbm(["13"]))["13"] <= -50
        with pytest.raises(DeviceRefused, match="72 cells, and 3 states"):
            await mesh.program([BAR] * 3)

    on_mesh(scenario)


def test_a_partial_program_sets_the_first_half():
    async def scenario(mesh):
        await mesh.inject(FaultSpec("partial", operation="program"))
        await mesh.program([CROSS] * 72)
        assert [c is CROSS for c in await mesh.cells()] == [True] * 36 + [False] * 36
        await mesh.inject(FaultSpec("lie", operation="program"))
        await mesh.program([BAR] * 72)
        assert (await mesh.cells())[0] is CROSS

    on_mesh(scenario)


def test_a_partial_apply_is_found():
    async def scenario(mesh):
        await mesh.inject(FaultSpec("partial", operation="apply"))
        with pytest.raises(StateMismatch):
            await mesh.apply({THERE, BACK})
        assert await mesh.circuits() == {THERE}

    on_mesh(scenario)


def test_routes_are_remembered_and_the_memory_is_bounded():
    optics = ToyOptics()

    async def scenario(mesh):
        for _ in range(3):
            await mesh.apply({THERE})
            await mesh.apply([])
        assert optics.routed == 1
        for n in range(ROUTES_KEPT + 50):
            bits = [i for i in range(9) if n >> i & 1]
            await mesh.apply({Circuit(str(2 * i), str(2 * i + 1)) for i in bits})
        assert len(mesh._routes) == ROUTES_KEPT

    on_mesh(scenario, optics)
