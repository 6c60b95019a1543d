"""Tasks that touch no device, and the background sampler."""

from __future__ import annotations

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from testbed.engine.tasks.sampling import Sampler
from testbed.errors import DeviceLost, TaskFailed


def test_waiting_takes_exactly_its_time(bench):
    async def scenario(bench):
        start_s = trio.current_time()
        assert (await bench.do("wait", duration="250 ms"))["waited_s"] == pytest.approx(0.25)
        assert trio.current_time() - start_s == pytest.approx(0.25)

    bench.run(scenario)
    assert bench.plan("wait", duration="2 min").estimate_s == 120


def test_marks_and_log_lines_are_written(bench):
    async def scenario(bench):
        await bench.do("mark", name="load.applied")
        await bench.do("log", message="half way")

    bench.run(scenario)
    assert bench.marks() == ["load.applied"]
    assert bench.events[-1]["message"] == "half way"
    with pytest.raises(ValidationError):
        bench.plan("mark", name="Load applied")


def test_assertions_fail_by_number_and_refuse_what_is_no_truth_value(bench):
    async def scenario(bench):
        await bench.do("assert", that=[True, True])
        with pytest.raises(TaskFailed, match=r"too slow \(number 2, 3 of 3\)"):
            await bench.do("assert", that=[True, False, False], message="too slow")
        with pytest.raises(TaskFailed, match=r"what was asserted is false$"):
            await bench.do("assert", that=False)
        with pytest.raises(TaskFailed, match=r"^broken$"):
            await bench.do("fail", message="broken")

    bench.run(scenario)
    for wrong in ("x < 3", 1, None, ["true"], []):
        with pytest.raises(ValidationError):
            bench.plan("assert", that=wrong)


def test_variables_are_the_fields_of_the_result(bench):
    async def scenario(bench):
        assert await bench.do("set", victim="host1", limit=3) == {"victim": "host1", "limit": 3}

    bench.run(scenario)
    for wrong in ({}, {"not a name": 1}):
        with pytest.raises(ValidationError):
            bench.plan("set", **wrong)


def spans(bench, name):
    return [e for e in bench.events if e["kind"] == "span" and e["name"] == f"sample.{name}"]


def test_a_sampler_reads_in_the_background_until_it_is_stopped(bench):
    """TC33: repeat every 0.5 s in the background, as a step of its own."""

    async def scenario(bench):
        started = await bench.do("sample", name="watts", every="500 ms", outlet_power="pdu0")
        assert started["samples"] == 0
        await bench.do("wait", duration="10 s")
        result = await bench.do("sample.stop", name="watts")
        assert result["samples"] in (20, 21)
        assert result["missed"] == result["failed"] == 0
        one = result["values"]["1"]
        assert one["min"] <= one["mean"] <= one["max"]
        taken = len(spans(bench, "watts"))
        await bench.do("wait", duration="5 s")
        assert len(spans(bench, "watts")) - taken <= 1  # the one that was being read
        with pytest.raises(TaskFailed, match="no sampler watts"):
            await bench.do("sample.stop", name="watts")

    bench.run(scenario)


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ({"optical_power": "ocs0", "ports": [1, 2]}, "1"),
        ({"interfaces": "host0"}, "p0.carrier"),
        ({"gpus": "host0"}, "gpu0.power_w"),
        ({"outlet_power": "pdu1"}, "4"),
    ],
)
def test_everything_that_can_be_read_can_be_sampled(bench, what, value):
    async def scenario(bench):
        result = await bench.do(
            "sample", name="s", every="100 ms", duration="1 s", wait=True, **what
        )
        assert result["samples"] == 10
        assert value in result["values"]

    bench.run(scenario)
    samples = spans(bench, "s")
    assert len(samples) == 10
    assert all(e["end"] >= e["t"] and "late_s" in e and value in e["values"] for e in samples)
    for number, e in enumerate(samples):  # TC65: absolute, without drift
        assert e["t"] == pytest.approx(samples[0]["t"] + 0.1 * number, abs=1e-6)


@given(
    reads=st.lists(st.floats(0.0, 3.5), min_size=1, max_size=30),
    every_s=st.floats(0.1, 1.0),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_the_schedule_never_drifts_and_never_bunches_whatever_a_reading_takes(
    make_bench, reads, every_s
):
    """TC65: sample n is due at start + n * every; what is late is told, what is missed counted."""
    bench = make_bench()
    slow = iter(reads)
    starts: list[float] = []

    async def read():
        starts.append(trio.current_time())
        await trio.sleep(next(slow, 0.0))
        return {"x": len(starts)}

    async def scenario(bench):
        sampler = Sampler("s", every_s, 20 * every_s, read)
        begin_s = trio.current_time()
        await sampler.run(bench)
        slots = [(start_s - begin_s) / every_s for start_s in starts]
        numbers = [round(slot) for slot in slots]
        assert slots == pytest.approx(numbers, abs=1e-6)
        assert numbers == sorted(set(numbers))
        assert sampler.taken + sampler.missed >= 20
        assert len(sampler.values) == 1
        assert sampler.values["x"].n == sampler.taken == len(starts)

    bench.run(scenario)


def test_a_device_that_fails_now_and_then_does_not_end_the_series(bench):
    broken = iter([False, True, True, False, False])

    async def read():
        if next(broken):
            raise DeviceLost("gone", device="pdu0")
        return {"x": 1.0}

    async def scenario(bench):
        sampler = Sampler("s", 1.0, 5.0, read)
        await sampler.run(bench)
        assert (sampler.taken, sampler.failed) == (3, 2)

    bench.run(scenario)
    assert [("error" in e) for e in spans(bench, "s")] == [False, True, True, False, False]


@pytest.mark.parametrize(
    "args",
    [
        {"every": "1 s"},
        {"every": 0, "gpus": "host0"},
        {"every": "1 s", "gpus": "host0", "interfaces": "host0"},
        {"every": "1 s", "gpus": "host0", "ports": ["1"]},
        {"every": "1 s", "gpus": "host0", "wait": True},
    ],
)
def test_a_sampler_reads_exactly_one_thing(bench, args):
    with pytest.raises(ValidationError):
        bench.plan("sample", name="s", **args)
