"""The modelled photonic mesh: its geometry, where light goes, and the routes over it."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devices.mock.hexagonal import HexagonalOptics
from devices.optical.hexmesh import HexMesh, NoRouteError, Router, propagate
from devices.optical.hexmesh.router import MAX_CELLS
from testbed.hal.types import CellState, Circuit

MESH = HexMesh.bench()
ROUTER = Router(MESH)
PORTS = tuple(MESH.ports)
TX = {0: ("12", "20"), 1: ("5", "37"), 2: ("2", "1"), 3: ("7", "35")}
RX = {0: ("18", "36"), 1: ("9", "6"), 2: ("17", "0"), 3: ("13", "34")}
STATES = st.lists(st.sampled_from(list(CellState)), min_size=72, max_size=72)


def ring_of_two(one, other):
    """Both ports of each server, as the bench links a slice of two."""
    found = []
    for a, b in ((one, other), (other, one)):
        found += [Circuit(TX[a][1], RX[b][0]), Circuit(TX[b][0], RX[a][1])]
    return found


def demands(count):
    ports = st.lists(st.sampled_from(PORTS), min_size=2 * count, max_size=2 * count, unique=True)
    return ports.map(lambda p: [Circuit(a, b) for a, b in zip(p[::2], p[1::2], strict=True)])


def test_the_bench_has_the_published_number_of_cells_and_the_published_ports():
    assert MESH.cells == 72
    assert {str(n) for n in range(38)} <= set(MESH.ports)


def test_every_waveguide_joins_two_arms_both_ways():
    assert all(MESH.joined[other] == arm for arm, other in MESH.joined.items())
    assert len(MESH.joined) + len(MESH.ports) == 4 * MESH.cells
    assert not set(MESH.ports.values()) & set(MESH.joined)


@given(STATES)
@settings(max_examples=40, deadline=None)
def test_light_is_neither_lost_nor_joined_and_goes_back_the_way_it_came(states):
    arrivals = {port: propagate(MESH, states, port) for port in PORTS}
    assert sorted(a.port for a in arrivals.values()) == sorted(PORTS)
    for port, arrival in arrivals.items():
        back = propagate(MESH, states, arrival.port)
        assert back.port == port
        assert back.cells == arrival.cells[::-1]


@given(st.integers(1, 4).flatmap(demands))
@settings(max_examples=60, deadline=None)
def test_light_arrives_exactly_where_the_router_was_asked_to_lead_it(circuits):
    try:
        routing = ROUTER.route(circuits)
    except NoRouteError:
        return
    for circuit in circuits:
        arrival = propagate(MESH, routing.states, circuit.ingress)
        assert arrival.port == circuit.egress
        assert arrival.cells == routing.routes[circuit].cells
        assert len(arrival.cells) <= MAX_CELLS


@given(demands(3))
@settings(max_examples=60, deadline=None)
def test_circuits_that_are_kept_keep_their_cells(circuits):
    try:
        before = ROUTER.route(circuits[:2])
        after = ROUTER.route(circuits, keep=before)
    except NoRouteError:
        return
    for circuit in circuits[:2]:
        assert after.routes[circuit] == before.routes[circuit]


@pytest.mark.parametrize(("one", "other"), list(combinations(range(4), 2)))
def test_every_pair_of_servers_can_be_linked_by_both_ports(one, other):
    circuits = ring_of_two(one, other)
    routing = ROUTER.route(circuits)
    for circuit in circuits:
        assert propagate(MESH, routing.states, circuit.ingress).port == circuit.egress


def test_no_route_says_which_circuit_is_too_long():
    short = Router(MESH, max_cells=2)
    with pytest.raises(NoRouteError, match="12>0 has no path of at most 2 cells"):
        short.route([Circuit("12", "0")])


def test_no_route_is_a_proof_on_a_mesh_small_enough_to_try_everything():
    """One hexagon: the router finds a routing exactly when some cell states make it."""
    small = HexMesh.of_rows(((0, 1),))
    router = Router(small, max_cells=12)
    ports = tuple(small.ports)
    made = set()
    for number in range(2**small.cells):
        states = [
            CellState.CROSS if number >> cell & 1 else CellState.BAR for cell in range(small.cells)
        ]
        to = {port: propagate(small, states, port).port for port in ports}
        made |= {((a, to[a]), (b, to[b])) for a, b in combinations(ports, 2)}
    for a, b in combinations(ports, 2):
        for x in ports:
            for y in ports:
                if x == y:
                    continue
                circuits = [Circuit(a, x), Circuit(b, y)]
                try:
                    router.route(circuits)
                    routed = True
                except NoRouteError:
                    routed = False
                assert routed == (((a, x), (b, y)) in made), circuits


def test_unknown_ports_are_named():
    with pytest.raises(NoRouteError, match="no port 99"):
        ROUTER.route([Circuit("99", "1")])


def test_the_twin_keeps_paths_and_falls_back_to_all_new_ones():
    optics = HexagonalOptics(72)
    first = optics.route(ring_of_two(0, 1))
    paths = optics.paths(first)
    for circuit in ring_of_two(0, 1):
        assert paths[circuit.ingress][0] == circuit.egress
    second = optics.paths(optics.route(ring_of_two(0, 3)))
    for circuit in ring_of_two(0, 3):
        assert second[circuit.ingress][0] == circuit.egress
