"""``sample``: read something again and again in the background, on an absolute schedule.

Sample ``n`` is due at ``start + n * every``, whatever the samples before it took, so the
schedule does not drift. A sample that is due while another is still being read is left out
and counted as missed: samples never bunch up. Each is a span with start, end and lateness.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import trio
from pydantic import Field, model_validator

from testbed.errors import DeviceError, TaskFailed
from testbed.hal.capabilities import (
    GpuHost,
    NicHost,
    OpticalPowerMonitor,
    OpticalSwitch,
    PowerMeter,
)
from testbed.playbook.args import DeviceName, HostName
from testbed.playbook.task import (
    PlanContext,
    TaskArgs,
    TaskContext,
    TaskPlan,
    TaskResult,
    TaskSpec,
)
from testbed.timing.clock import now_s
from testbed.timing.quantity import Seconds

from .switch import PortText

Reader = Callable[[], Awaitable[Mapping[str, Any]]]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


class SampleArgs(TaskArgs):
    """Arguments of ``sample``: a name, a schedule, and exactly one thing to read.

    :ivar every: time between two samples, from start to start.
    :ivar duration: how long; until the trial ends or ``sample.stop`` when there is none.
    :ivar wait: return only when ``duration`` is over, with the statistics.
    :ivar optical_power: switch whose ``ports`` are read, in dBm (all ports when none is named).
    :ivar outlet_power: power controller whose outlets are read, in watts.
    :ivar interfaces: host whose interfaces are read: carrier, and received power in dBm.
    :ivar gpus: host whose GPUs are read: power in watts, temperature in °C.
    """

    name: Name
    every: Annotated[Seconds, Field(gt=0)]
    duration: Seconds | None = None
    wait: bool = False
    optical_power: DeviceName | None = None
    ports: tuple[PortText, ...] = ()
    outlet_power: DeviceName | None = None
    interfaces: HostName | None = None
    gpus: HostName | None = None

    @model_validator(mode="after")
    def _one_thing(self) -> SampleArgs:
        given = [name for name in _READERS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"give exactly one of {', '.join(_READERS)}, not {' and '.join(given) or 'none'}"
            )
        if self.ports and self.optical_power is None:
            raise ValueError("ports belong to optical_power")
        if self.wait and self.duration is None:
            raise ValueError("wait needs a duration")
        return self

    @property
    def quantity(self) -> str:
        """Which of the things is read."""
        return next(name for name in _READERS if getattr(self, name) is not None)

    @property
    def device(self) -> str:
        return str(getattr(self, self.quantity))


def _optical_power(context: TaskContext, args: SampleArgs) -> Reader:
    monitor = context.device(args.device, OpticalPowerMonitor)

    async def read() -> Mapping[str, Any]:
        ports = args.ports or tuple(await context.device(args.device, OpticalSwitch).ports())
        return await monitor.port_power_dbm(ports)

    return read


def _outlet_power(context: TaskContext, args: SampleArgs) -> Reader:
    return context.device(args.device, PowerMeter).outlet_power_w


def _interfaces(context: TaskContext, args: SampleArgs) -> Reader:
    host = context.device(args.device, NicHost)

    async def read() -> Mapping[str, Any]:
        values: dict[str, Any] = {}
        for name, state in (await host.interfaces()).items():
            values[f"{name}.carrier"] = str(state.carrier)
            if state.rx_power_dbm is not None:
                values[f"{name}.rx_dbm"] = state.rx_power_dbm
        return values

    return read


def _gpus(context: TaskContext, args: SampleArgs) -> Reader:
    host = context.device(args.device, GpuHost)

    async def read() -> Mapping[str, Any]:
        values: dict[str, Any] = {}
        for gpu in await host.gpus():
            values[f"gpu{gpu.index}.power_w"] = gpu.power_w
            values[f"gpu{gpu.index}.temperature_c"] = gpu.temperature_c
            values[f"gpu{gpu.index}.healthy"] = gpu.healthy
        return values

    return read


_READERS: Mapping[str, Callable[[TaskContext, SampleArgs], Reader]] = {
    "optical_power": _optical_power,
    "outlet_power": _outlet_power,
    "interfaces": _interfaces,
    "gpus": _gpus,
}


@dataclass
class Series:
    """Running statistics of one value: constant in memory however many samples there are."""

    n: int = 0
    mean: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    last: Any = None

    def add(self, value: Any) -> None:
        self.last = value
        if isinstance(value, int | float) and not isinstance(value, bool):
            self.n += 1
            self.mean += (value - self.mean) / self.n
            self.low, self.high = min(self.low, value), max(self.high, value)

    def as_record(self) -> dict[str, Any]:
        if not self.n:
            return {"last": self.last}
        return {
            "n": self.n,
            "min": self.low,
            "mean": self.mean,
            "max": self.high,
            "last": self.last,
        }


@dataclass
class Sampler:
    """One series of samples while it runs, and its statistics.

    :ivar missed: slots of the schedule that were left out.
    :ivar failed: samples that ended in an error of the device; they do not end the series.
    """

    name: str
    every_s: float
    duration_s: float | None
    read: Reader
    taken: int = 0
    missed: int = 0
    failed: int = 0
    latest_s: float = 0.0
    values: dict[str, Series] = field(default_factory=dict)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    async def run(self, context: TaskContext) -> None:
        """Take samples until the time is over or :attr:`scope` is cancelled."""
        start_s = now_s()
        slot = 0
        with self.scope:
            while self.duration_s is None or slot * self.every_s < self.duration_s:
                due_s = start_s + slot * self.every_s
                await trio.sleep(max(0.0, due_s - now_s()))
                await self._take(context, slot, now_s() - due_s)
                # The next slot that is not over yet; a slot due this very instant counts.
                following = max(slot + 1, math.ceil((now_s() - start_s) / self.every_s - 1e-9))
                self.missed += following - slot - 1
                slot = following
            await trio.sleep(max(0.0, start_s + (self.duration_s or 0.0) - now_s()))

    async def _take(self, context: TaskContext, slot: int, late_s: float) -> None:
        self.latest_s = max(self.latest_s, late_s)
        with context.span(f"sample.{self.name}", slot=slot, late_s=round(late_s, 9)) as span:
            try:
                values = await self.read()
            except DeviceError as error:
                self.failed += 1
                span.fields["error"] = error.as_record()
                return
            span.fields["values"] = dict(values)
        self.taken += 1
        for key, value in values.items():
            self.values.setdefault(key, Series()).add(value)

    def as_record(self) -> dict[str, Any]:
        return {
            "samples": self.taken,
            "missed": self.missed,
            "failed": self.failed,
            "latest_s": self.latest_s,
            "values": {key: series.as_record() for key, series in self.values.items()},
        }


class Samplers(dict[str, Sampler]):
    """The samplers of a trial, by name."""


async def sample(context: TaskContext, args: SampleArgs) -> TaskResult:
    """Start sampling in the background; with ``wait``, sample and return the statistics."""
    running = context.resource(Samplers, Samplers)
    if args.name in running:
        raise TaskFailed(f"a sampler {args.name} runs already", remedy="give each its own name")
    sampler = Sampler(args.name, args.every, args.duration, _READERS[args.quantity](context, args))
    running[args.name] = sampler
    if not args.wait:
        context.start_soon(lambda: sampler.run(context), name=f"sample {args.name}")
        return sampler.as_record()
    try:
        await sampler.run(context)
    finally:
        del running[args.name]
    return sampler.as_record()


class StopArgs(TaskArgs):
    """Arguments of ``sample.stop``."""

    name: Name


async def stop(context: TaskContext, args: StopArgs) -> TaskResult:
    """End a sampler of this trial, and return its statistics."""
    running = context.resource(Samplers, Samplers)
    if args.name not in running:
        raise TaskFailed(
            f"there is no sampler {args.name} in this trial",
            remedy=f"samplers: {', '.join(running)}" if running else "start it with sample",
        )
    sampler = running.pop(args.name)
    sampler.scope.cancel()
    return sampler.as_record()


def _plan_sample(context: PlanContext, args: SampleArgs) -> TaskPlan:
    return TaskPlan(devices=(args.device,), estimate_s=args.duration if args.wait else 0.0)


def _plan_stop(context: PlanContext, args: StopArgs) -> TaskPlan:
    return TaskPlan()


_RESULT = {"samples": int, "missed": int, "failed": int, "latest_s": float, "values": dict}

TASKS = [
    TaskSpec(
        "sample",
        "Read something every so often in the background, without drift.",
        SampleArgs,
        sample,
        plan=_plan_sample,
        deadline_s=86400.0,
        result=_RESULT,
    ),
    TaskSpec(
        "sample.stop",
        "End a sampler and return its statistics.",
        StopArgs,
        stop,
        plan=_plan_stop,
        result=_RESULT,
        short="name",
    ),
]
