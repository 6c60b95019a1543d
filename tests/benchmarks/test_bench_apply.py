"""Cost of an ``apply`` in our own time: 160 circuits exchanged on a 320-port mock, all model
delays zero, in virtual time."""

import statistics
import time

from devices.mock.rack import mock_rack
from testbed.hal.types import Circuit
from testbed.hal.wiring import Endpoint, Fibre, SwitchPort, Wiring
from testbed.timing.clock import run

PORTS, CIRCUITS = 320, 160


def applies(count):
    """Own time of each of so many applies, all of which exchange every circuit."""
    fibres = []
    for n in range(CIRCUITS):
        end = Endpoint(f"host{n // 4}", f"p{n % 4}")
        fibres.append(Fibre(end, SwitchPort("ocs", str(n + 1)), True))
        fibres.append(Fibre(end, SwitchPort("ocs", str(n + 1 + CIRCUITS)), False))
    devices = {"ocs": ("circuit-switch", {"class": "ideal", "ports": PORTS, "ingress": CIRCUITS})}
    targets = [
        [Circuit(str(n + 1), str((n + shift) % CIRCUITS + 1 + CIRCUITS)) for n in range(CIRCUITS)]
        for shift in (0, 1)
    ]
    spent = []

    async def main():
        async with mock_rack(devices, Wiring(tuple(fibres))) as rack:
            for n in range(count):
                began = time.perf_counter()
                report = await rack["ocs"].apply(targets[n % 2])
                spent.append(time.perf_counter() - began)
                assert len(report.added) == CIRCUITS and report.light_checked

    run(main, virtual=True)
    return spent


def test_bench_apply_160_circuits_on_320_ports(benchmark):
    """The median of 40 applies; the first, which fills an empty switch, is left out."""
    spent = benchmark.pedantic(applies, args=(41,), rounds=3, warmup_rounds=1)[1:]
    benchmark.extra_info["apply_ms"] = 1e3 * statistics.median(spent)
