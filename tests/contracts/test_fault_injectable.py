"""Contract of FaultInjectable, on every device of a lab."""

import pytest
import trio

from testbed.errors import DeviceLost, DeviceRefused, ProtocolError
from testbed.hal.capabilities import FaultInjectable
from testbed.hal.types import FaultSpec

NAMES = ("switch", "host", "power")
READ = {"switch": "circuits", "host": "health", "power": "outlets"}
CONDITIONS = (
    "slow", "refuse", "silent", "garbage", "drop", "late", "partial", "lie", "unreachable",
)  # fmt: skip


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def read(rack, name):
    return getattr(rack[name], READ[name])


def test_kinds_are_documented(lab, name):
    async def scenario(rack):
        device = rack[name]
        assert isinstance(device, FaultInjectable)
        kinds = device.fault_kinds()
        assert set(CONDITIONS) < set(kinds)
        assert all(len(text) > 20 for text in kinds.values())

    lab.run(scenario)


def test_an_unknown_kind_is_refused_with_a_hint(lab, name):
    async def scenario(rack):
        with pytest.raises(DeviceRefused, match="did you mean 'refuse'"):
            await rack[name].inject(FaultSpec("refusee", operation="*"))

    lab.run(scenario)


@pytest.mark.parametrize(
    ("kind", "error"),
    [("refuse", DeviceRefused), ("garbage", ProtocolError), ("drop", DeviceLost)],
)
def test_a_condition_hits_as_often_as_asked(lab, name, kind, error):
    async def scenario(rack):
        operation = read(rack, name)
        fault = FaultSpec(kind, operation=operation.__name__, count=2, after=1)
        await rack[name].inject(fault)
        await operation()
        for _ in range(2):
            with pytest.raises(error) as caught:
                await operation()
            assert caught.value.device == name
            assert caught.value.operation == operation.__name__
        await operation()

    lab.run(scenario)


def test_silence_lasts_until_the_callers_deadline(lab, name):
    """TC25: a peer that accepts and says nothing; the next operation works."""

    async def scenario(rack):
        operation = read(rack, name)
        await rack[name].inject(FaultSpec("silent", operation="read"))
        with trio.move_on_after(1000) as silence:
            await operation()
        assert silence.cancelled_caught
        await operation()

    lab.run(scenario)


def test_unreachable_lasts_until_it_is_cleared(lab, name):
    async def scenario(rack):
        await rack[name].inject(FaultSpec("unreachable"))
        for _ in range(3):
            with pytest.raises(DeviceLost, match="cannot be reached"):
                await read(rack, name)()
        await rack[name].clear_faults()
        await read(rack, name)()

    lab.run(scenario)


def test_faults_can_hit_connecting_and_closing(lab, name):
    """TC59: connecting can hang or fail, and so can closing."""

    async def scenario(rack):
        device = rack[name]
        await device.inject(FaultSpec("silent", operation="open"))
        with trio.move_on_after(100) as silence:
            await device.open()
        assert silence.cancelled_caught
        await device.inject(FaultSpec("refuse", operation="close"))
        with pytest.raises(DeviceRefused):
            await device.close()
        await device.open()

    lab.run(scenario)


def test_hooks_may_be_functions_and_coroutine_functions(lab, name):
    """TC57: a test may do something of its own before an operation, awaiting or not."""

    async def scenario(rack):
        seen = []

        async def slowly(operation):
            await trio.sleep(3)
            seen.append(("async", operation))

        operation = read(rack, name)
        unhook = [
            rack[name].hook("read", lambda op: seen.append(("sync", op))),
            rack[name].hook("*", slowly),
        ]
        await operation()
        assert seen == [("sync", operation.__name__), ("async", operation.__name__)]
        for undo in unhook:
            undo()
        await operation()
        assert len(seen) == 2

    lab.run(scenario)


def test_the_same_seed_hits_the_same_operations(lab, name):
    def hits(seed):
        found = []

        async def scenario(rack):
            await rack[name].inject(FaultSpec("refuse", operation="*", count=None, probability=0.3))
            for _ in range(40):
                try:
                    await read(rack, name)()
                    found.append(False)
                except DeviceRefused:
                    found.append(True)
            await rack[name].clear_faults()

        lab.run(scenario, seed=seed)
        return found

    assert hits(5) == hits(5) != hits(6)
    assert 2 < sum(hits(5)) < 25
