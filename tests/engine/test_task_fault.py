"""Tasks ``fault.inject`` and ``fault.clear``: on twins, and by ordinary means on real devices."""

import random
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
import trio
from pydantic import ValidationError

from devices.mock.faults import CONDITIONS as TWIN_CONDITIONS
from devices.mock.rack import mock_rack
from testbed.engine.tasks.fault import CONDITIONS, TASKS, ClearArgs, InjectArgs
from testbed.errors import DeviceRefused, RackError
from testbed.hal.registry import driver
from testbed.hal.types import Backend, Carrier, OutletState
from testbed.hal.wiring import Endpoint, Feed, Fibre, OutletRef, SwitchPort, Wiring
from testbed.rack.rack import DeviceEntry, Rack, SafeState
from testbed.timing.clock import now_s, run
from testbed.timing.marks import Timeline

SPECS = {spec.name: spec for spec in TASKS}
WIRING = Wiring(
    (
        Fibre(Endpoint("host0", "p0"), SwitchPort("ocs", "1"), True),
        Fibre(Endpoint("host0", "p0"), SwitchPort("ocs", "2"), False),
    ),
    (Feed(OutletRef("pdu-a", "1"), "host0"), Feed(OutletRef("pdu-b", "1"), "host0")),
)
DEVICES = {
    "ocs": ("circuit-switch", {"ports": 4}),
    "host0": ("gpu-host", {"interfaces": 1}),
    "host9": ("gpu-host", {"interfaces": 1}),
    "pdu-a": ("pdu", {}),
    "pdu-b": ("pdu", {}),
}


class Context:
    """The part of a task context that these tasks use."""

    run_id = "run-1"
    trial = 0
    virtual = True

    def __init__(self, rack, devices, nursery):
        self.rack, self._devices, self._nursery = rack, devices, nursery
        self.events, self.cleanups, self._resources = [], [], {}
        self.timeline = Timeline(self.events.append)
        self.rng = random.Random(0)

    def device(self, name, capability):
        assert isinstance(self._devices[name], capability)
        return self._devices[name]

    def mark(self, name, **fields):
        return self.timeline.mark(name, **fields)

    def add_cleanup(self, name, step, *, deadline_s=10.0):
        self.cleanups.append(step)
        return lambda: self.cleanups.remove(step)

    def resource(self, kind, make):
        return self._resources.setdefault(kind, make())

    def start_soon(self, work, *, name):
        self._nursery.start_soon(work, name=name)

    async def task(self, name, **args):
        spec = SPECS[name]
        return await spec.run(self, spec.args(**args))

    async def end_trial(self):
        for step in reversed(self.cleanups):
            await step()

    def marked(self, name):
        return [m for m in self.timeline.marks if m.name == name]


@asynccontextmanager
async def bench(backend=Backend.MOCK):
    entries = {
        name: DeviceEntry(name, driver(kind), backend, driver(kind).options(**options))
        for name, (kind, options) in DEVICES.items()
    }
    rack = Rack("r", "r.yaml", "", "", entries, WIRING, SafeState())
    async with mock_rack(DEVICES, WIRING) as devices, trio.open_nursery() as nursery:
        yield Context(rack, devices, nursery), SimpleNamespace(**{
            name.replace("-", "_"): device for name, device in devices.items()
        })  # fmt: skip


def on_bench(scenario, backend=Backend.MOCK):
    async def main():
        async with bench(backend) as (context, devices):
            await scenario(context, devices)

    run(main, virtual=True)


BACKENDS = pytest.mark.parametrize("backend", [Backend.MOCK, Backend.REAL])


@BACKENDS
def test_power_off_takes_all_feeds_and_is_undone(backend):
    """The same playbook on a twin and on a real rack, where the outlets do it."""

    async def scenario(context, devices):
        before = await devices.host0.health()
        began = now_s()
        await context.task("fault.inject", host="host0", kind="power-off")
        (mark,) = context.marked("fault.injected")
        assert mark.t_s == pytest.approx(began - context.timeline.origin_s)
        assert mark.error_s == pytest.approx(now_s() - began)
        for pdu in (devices.pdu_a, devices.pdu_b):
            assert (await pdu.outlets())["1"] is OutletState.OFF
        await context.end_trial()
        assert (await devices.host0.health()).boot_id != before.boot_id

    on_bench(scenario, backend)


@BACKENDS
def test_process_kill(backend):
    async def scenario(context, devices):
        process = await devices.host0.spawn(["sleep", "1000"], tag="run-1")
        await context.task("fault.inject", host="host0", kind="process-kill")
        assert await process.wait() == -9
        assert [e["device"] for e in context.events if e["kind"] == "fault"] == ["host0"]
        await context.end_trial()

    on_bench(scenario, backend)


@BACKENDS
def test_a_kill_that_hits_nothing_fails(backend):
    """A fault that did not happen must not look like a recovery."""

    async def scenario(context, devices):
        with pytest.raises((RackError, DeviceRefused), match="no process"):
            await context.task("fault.inject", host="host0", kind="process-kill")
        assert not context.marked("fault.injected")

    on_bench(scenario, backend)


@BACKENDS
def test_nic_down_by_link(backend):
    async def scenario(context, devices):
        link = ["host0.p0", "host9.p0"]
        await context.task("fault.inject", link=link, kind="nic-down")
        assert not (await devices.host0.interfaces())["p0"].enabled
        await context.task("fault.clear")
        state = (await devices.host0.interfaces())["p0"]
        assert state.enabled and state.carrier is Carrier.DOWN
        assert context.marked("fault.cleared")
        await context.end_trial()

    on_bench(scenario, backend)


def test_process_hang_on_a_real_host_is_a_signal():
    class Shell:
        def __init__(self):
            self.commands = []

        async def processes(self, tag):
            assert tag == "run-1"
            return [SimpleNamespace(pid=7), SimpleNamespace(pid=8)]

        async def run(self, argv):
            self.commands.append(argv)

    async def scenario(context, devices):
        shell = Shell()
        context.device = lambda name, capability: shell
        await context.task("fault.inject", host="host0", kind="process-hang")
        await context.end_trial()
        assert shell.commands == [["kill", "-STOP", "7", "8"], ["kill", "-CONT", "7", "8"]]

    on_bench(scenario, Backend.REAL)


def test_a_real_device_does_not_misbehave_on_demand():
    async def scenario(context, devices):
        with pytest.raises(RackError, match="gpu-xid cannot be injected on host0") as caught:
            await context.task("fault.inject", host="host0", kind="gpu-xid")
        assert "power-off" in caught.value.remedy
        with pytest.raises(RackError, match="refuse at apply"):
            await context.task("fault.inject", device="ocs", kind="refuse", operation="apply")
        with pytest.raises(RackError, match="no outlet feeds host host9"):
            await context.task("fault.inject", host="host9", kind="power-off")

    on_bench(scenario, Backend.REAL)


def test_a_condition_waits_for_its_operation_and_sets_no_mark():
    async def scenario(context, devices):
        await context.task(
            "fault.inject", device="ocs", kind="refuse", operation="circuits", count=1
        )
        assert not context.marked("fault.injected")
        with pytest.raises(DeviceRefused):
            await devices.ocs.circuits()
        await devices.ocs.circuits()

    on_bench(scenario)


def test_conditions_are_cleared_at_the_end_of_the_trial():
    async def scenario(context, devices):
        for _ in range(2):
            await context.task("fault.inject", device="ocs", kind="unreachable")
        assert len(context.cleanups) == 1
        await context.end_trial()
        await devices.ocs.circuits()

    on_bench(scenario)


@BACKENDS
def test_a_fault_in_the_future_is_marked_when_it_happens(backend):
    async def scenario(context, devices):
        result = await context.task(
            "fault.inject", host="host0", kind="power-off", after_s="300 ms"
        )
        assert result["scheduled"] and not context.marked("fault.injected")
        await trio.sleep(2)
        (mark,) = context.marked("fault.injected")
        assert mark.t_s == pytest.approx(0.3, abs=0.01)
        await context.end_trial()

    on_bench(scenario, backend)


def test_the_task_knows_the_conditions_of_the_twins():
    assert set(CONDITIONS) == set(TWIN_CONDITIONS)


def test_arguments_name_one_place():
    for given in ({}, {"host": "a", "device": "b"}, {"link": ["a.p", "b.p"], "target": "x"}):
        with pytest.raises(ValidationError):
            InjectArgs(kind="power-off", **given)


def test_the_plan_names_devices_and_the_change():
    plan = SPECS["fault.inject"].plan
    entries = {
        name: DeviceEntry(name, driver(kind), Backend.REAL, driver(kind).options(**options))
        for name, (kind, options) in DEVICES.items()
    }
    rack = Rack("r", "r.yaml", "", "", entries, WIRING, SafeState())
    args = InjectArgs(host="host0", kind="power-off", after_s=1)
    real = plan(SimpleNamespace(rack=rack), args)
    assert real.devices == ("host0", "pdu-a", "pdu-b")
    assert real.changes == ("power-off on host0 in 1 s",)
    twins = {n: replace(e, backend=Backend.MOCK) for n, e in entries.items()}
    assert plan(SimpleNamespace(rack=replace(rack, devices=twins)), args).devices == ("host0",)
    cleared = SPECS["fault.clear"].plan(SimpleNamespace(rack=rack), ClearArgs())
    assert cleared.devices == ()
