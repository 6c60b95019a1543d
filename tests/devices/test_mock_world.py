"""Physics of the simulated world: light is exactly where circuits, fibres and power put it."""

from dataclasses import dataclass, field

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from devices.mock.rack import mock_rack
from testbed.hal.power import switch_verified
from testbed.hal.types import Carrier, Circuit, FaultSpec, OutletState
from testbed.hal.wiring import Endpoint, Feed, Fibre, OutletRef, SwitchPort, Wiring
from testbed.timing.clock import now_s, run

COUNT = 4
HOSTS = tuple(f"host{n}" for n in range(COUNT))
DEVICES = {
    "ocs": ("circuit-switch", {"ports": 2 * COUNT, "ingress": COUNT}),
    **{host: ("gpu-host", {"interfaces": 1}) for host in HOSTS},
    "pdu": ("pdu", {}),
}
SETTLED_S = 30.0


def wiring():
    fibres = []
    for n, host in enumerate(HOSTS):
        end = Endpoint(host, "p0")
        fibres.append(Fibre(end, SwitchPort("ocs", str(n + 1)), True, loss_db=0.4))
        fibres.append(Fibre(end, SwitchPort("ocs", str(n + 1 + COUNT)), False, loss_db=0.6))
    feeds = [Feed(OutletRef("pdu", str(n + 1)), host) for n, host in enumerate(HOSTS)]
    return Wiring(tuple(fibres), tuple(feeds))


@dataclass
class Model:
    """What must be true of the light, by the book."""

    circuits: dict[int, int] = field(default_factory=dict)
    off: set[int] = field(default_factory=set)
    nic_down: set[int] = field(default_factory=set)
    cut: set[int] = field(default_factory=set)

    def transmits(self, n):
        return n not in self.off and n not in self.nic_down

    def lit(self, n):
        """Whether receiver ``n`` sees light."""
        sources = [i for i, o in self.circuits.items() if o == n]
        return any(self.transmits(i) and i not in self.cut for i in sources) and n not in self.cut

    def carrier(self, n):
        return self.lit(n) and self.transmits(n)


host = st.integers(0, COUNT - 1)
operations = st.lists(
    st.one_of(
        st.tuples(
            st.just("apply"),
            st.permutations(range(COUNT)).flatmap(
                lambda order: st.lists(
                    st.sampled_from(range(COUNT)), unique=True, max_size=COUNT
                ).map(lambda chosen: {i: order[i] for i in chosen})
            ),
        ),
        st.tuples(st.sampled_from(["power", "nic", "cut"]), host),
        st.tuples(st.just("clear"), host),
    ),
    max_size=12,
)


async def perform(rack, model, operation, value):
    if operation == "apply":
        await rack["ocs"].apply({Circuit(str(i + 1), str(o + 1 + COUNT)) for i, o in value.items()})
        model.circuits = dict(value)
    elif operation == "power":
        off = value not in model.off
        state = OutletState.OFF if off else OutletState.ON
        await switch_verified(rack["pdu"], [str(value + 1)], state)
        (model.off.add if off else model.off.discard)(value)
        if not off:
            model.nic_down.discard(value)  # a boot brings the interfaces up
    elif operation == "nic" and value not in model.off:
        down = value not in model.nic_down
        await rack[HOSTS[value]].set_interface("p0", enabled=not down)
        (model.nic_down.add if down else model.nic_down.discard)(value)
    elif operation == "cut":
        await rack[HOSTS[value]].inject(FaultSpec("fibre-cut"))
        model.cut.add(value)
    elif operation == "clear":
        await rack[HOSTS[value]].clear_faults()
        model.cut.discard(value)


@settings(max_examples=40, deadline=None)
@given(operations, st.integers(0, 3))
def test_light_arrives_exactly_where_circuits_say(steps, seed):
    async def main():
        model = Model()
        async with mock_rack(DEVICES, wiring(), seed=seed) as rack:
            for operation, value in steps:
                await perform(rack, model, operation, value)
                await trio.sleep(SETTLED_S)
                ports = [str(n + 1 + COUNT) for n in range(COUNT)]
                light = await rack["ocs"].port_power_dbm(ports)
                for n, name in enumerate(HOSTS):
                    machine = rack[name].machine
                    nic = machine.interfaces["p0"].state()
                    assert (nic.carrier is Carrier.UP) is model.carrier(n), (operation, name)
                    assert (nic.rx_power_dbm > -50) is model.lit(n)
                    if nic.carrier is Carrier.UP:
                        assert nic.rx_power_dbm < light[ports[n]]
                for a in range(COUNT):
                    for b in range(COUNT):
                        both = (
                            a != b
                            and model.circuits.get(a) == b
                            and model.circuits.get(b) == a
                            and model.carrier(a)
                            and model.carrier(b)
                        )
                        rate = rack[HOSTS[a]].machine.link_rate_bps(HOSTS[b])
                        assert rate == (10e9 if both else 0)

    run(main, virtual=True, seed=seed)


def test_levels_add_up():
    """0 dBm, 0.4 dB of fibre, the circuit, 0.6 dB of fibre."""

    async def main():
        devices = dict(DEVICES)
        devices["ocs"] = ("circuit-switch", {"ports": 8, "insertion_loss": 2, "connector_loss": 0})
        async with mock_rack(devices, wiring()) as rack:
            await rack["ocs"].apply({Circuit("1", "6")})
            levels = await rack["ocs"].port_power_dbm(["1", "6"])
            assert levels == {"1": -0.4, "6": -2.4}
            assert (await rack["host1"].interfaces())["p0"].rx_power_dbm == -3.0

    run(main, virtual=True)


def test_too_little_light_makes_no_carrier():
    async def main():
        devices = dict(DEVICES)
        devices["ocs"] = ("circuit-switch", {"ports": 8, "insertion_loss": 20})
        async with mock_rack(devices, wiring()) as rack:
            await rack["ocs"].apply({Circuit("1", "6")})
            await trio.sleep(SETTLED_S)
            nic = (await rack["host1"].interfaces())["p0"]
            assert -22 < nic.rx_power_dbm < -20
            assert nic.carrier is Carrier.DOWN

    run(main, virtual=True)


def test_light_goes_at_once_and_comes_after_the_switching_time():
    async def main():
        devices = dict(DEVICES)
        timing = {"command": 0, "switching": "20 ms", "settle": "5 ms"}
        devices["ocs"] = ("circuit-switch", {"ports": 8, "timing": timing})
        for name in HOSTS:
            devices[name] = ("gpu-host", {"interfaces": 1, "timing": {"link_up": "100 ms"}})
        async with mock_rack(devices, wiring()) as rack:
            began = now_s()
            report = await rack["ocs"].apply({Circuit("1", "6")})
            assert abs(report.acknowledged_s - began - 0.020) < 1e-9
            assert 0.025 <= report.verified_s - began < 0.028
            nic = rack["host1"].machine.interfaces["p0"]
            await rack["host1"].wait_carrier("p0", Carrier.UP)
            assert 0.125 <= now_s() - began < 0.128
            with trio.move_on_after(0.001):
                await rack["ocs"].apply({Circuit("1", "7")})
            assert nic.carrier is Carrier.DOWN

    run(main, virtual=True)


def test_a_robot_makes_one_circuit_after_the_other():
    async def main():
        devices = dict(DEVICES)
        devices["ocs"] = ("circuit-switch", {"class": "robotic", "ports": 8})
        async with mock_rack(devices, wiring()) as rack:
            began = now_s()
            await rack["ocs"].apply({Circuit(str(n), str(n + 4)) for n in (1, 2, 3, 4)})
            assert now_s() - began > 4 * 25

    run(main, virtual=True)


# --- determinism ---------------------------------------------------------------------------


def history(seed):
    seen = []

    async def main():
        async with mock_rack(DEVICES, wiring(), seed=seed) as rack:
            for shift in (1, 2, 3):
                target = {
                    Circuit(str(n + 1), str((n + shift) % COUNT + 1 + COUNT)) for n in range(COUNT)
                }
                report = await rack["ocs"].apply(target)
                seen.append((report.sent_s, report.acknowledged_s, report.verified_s))
                async with trio.open_nursery() as nursery:
                    for name in HOSTS:

                        async def wait(name=name):
                            await rack[name].wait_carrier("p0", Carrier.UP)
                            seen.append((name, now_s()))

                        nursery.start_soon(wait)
            await rack["host1"].inject(FaultSpec("power-off"))
            await rack["host1"].clear_faults()
            seen.append(await rack["host1"].health())

    run(main, virtual=True, seed=seed)
    return seen


def test_the_same_seed_gives_the_same_history():
    assert history(3) == history(3)
    assert history(3) != history(4)


def test_every_operation_draws_its_own_duration():
    applies = history(5)[::5][:3]  # each is followed by the four link-ups
    durations = [round(acknowledged - sent, 9) for sent, acknowledged, _ in applies]
    assert len(set(durations)) == 3


# --- processes in the world ----------------------------------------------------------------


def test_nothing_grows_with_the_number_of_trials():
    async def main():
        async with mock_rack(DEVICES, wiring()) as rack:
            host, machine = rack["host0"], rack["host0"].machine
            for n in range(50):
                process = await host.spawn(["sleep", "1000"], tag=f"run-{n}")
                await host.inject(FaultSpec("gpu-xid"))
                await host.inject(FaultSpec("nic-down", params={"after_s": 1000}))
                await host.kill(f"run-{n}")
                await process.wait()
                await host.clear_faults()
            assert not machine.processes and not machine.orphans and not machine.gpu_errors
            assert not rack["ocs"].world._agreed
            await trio.sleep(2000)
            assert len(rack["ocs"].world.timers._heap) == 0

    run(main, virtual=True)
