"""Cost of routing over the 72-cell mesh, with paths listed anew each time."""

from itertools import combinations

from devices.optical.hexmesh import HexMesh, Router
from testbed.hal.types import Circuit

TX = {0: ("12", "20"), 1: ("5", "37"), 2: ("2", "1"), 3: ("7", "35")}
RX = {0: ("18", "36"), 1: ("9", "6"), 2: ("17", "0"), 3: ("13", "34")}


def test_routing_every_pair_of_the_bench(benchmark):
    sets = []
    for one, other in combinations(range(4), 2):
        circuits = []
        for a, b in ((one, other), (other, one)):
            circuits += [Circuit(TX[a][1], RX[b][0]), Circuit(TX[b][0], RX[a][1])]
        sets.append(circuits)

    def route_all():
        router = Router(HexMesh.bench())
        for circuits in sets:
            router.route(circuits)

    benchmark(route_all)
    benchmark.extra_info["circuits"] = sum(map(len, sets))
