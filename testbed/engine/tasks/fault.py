"""Tasks that make devices fail, and mend them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any

import trio
from pydantic import Field, model_validator

from testbed.engine.tasks.fault_means import Means, ordinary_means, outlets_of
from testbed.errors import RackError
from testbed.hal.capabilities import FaultInjectable
from testbed.hal.types import Backend, FaultSpec
from testbed.hal.wiring import Endpoint
from testbed.playbook.args import DeviceName, HostName, InterfaceName
from testbed.playbook.task import (
    PlanContext,
    TaskArgs,
    TaskContext,
    TaskPlan,
    TaskResult,
    TaskSpec,
)
from testbed.rack.rack import Rack
from testbed.store import events
from testbed.timing.clock import now_s
from testbed.timing.quantity import Seconds

INJECTED = "fault.injected"
CLEARED = "fault.cleared"

CONDITIONS = frozenset(
    {"slow", "refuse", "silent", "garbage", "drop", "late", "partial", "lie", "unreachable"}
)
"""Faults that wait for an operation, so that nothing has happened when they are injected."""

CLEAR_WITHIN_S = 30.0
DEADLINE_S = 30.0


class InjectArgs(TaskArgs):
    """Arguments of ``fault.inject``: where by exactly one of ``host``, ``device`` and ``link``.

    :ivar link: two interfaces; the fault hits the fibres or the interface of the first.
    :ivar kind: what happens; ``testbed schema`` and ``fault_kinds`` of a device list them.
    :ivar operation: for a condition, the operation that meets it (``apply``, ``switch``,
        ``read``, ``write``, ``*``).
    :ivar target: what is hit: a port, an outlet, an interface, a GPU index, a tag.
    :ivar count: how many operations are hit.
    :ivar after: how many operations pass unharmed before.
    :ivar after_s: happen so much later, in the background; ``fault.injected`` is set then.
    :ivar on: happen when an operation begins (``apply``, ``ocs.apply``): only on devices that
        can be told to. Sets no mark, since only the device sees the instant.
    :ivar params: further parameters of the kind.
    """

    host: HostName | None = None
    device: DeviceName | None = None
    link: tuple[InterfaceName, InterfaceName] | None = None
    kind: str
    operation: str | None = None
    target: str | None = None
    count: Annotated[int, Field(ge=1)] | None = 1
    after: Annotated[int, Field(ge=0)] = 0
    probability: Annotated[float, Field(gt=0, le=1)] = 1.0
    after_s: Seconds = 0.0
    on: str | None = None
    params: Mapping[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_place(self) -> InjectArgs:
        given = [n for n in ("host", "device", "link") if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError(
                f"give exactly one of host, device and link, not {' and '.join(given) or 'none'}"
            )
        if self.link is not None and self.target is not None:
            raise ValueError("a fault of a link has no target: the link is what it hits")
        return self

    def where(self) -> str:
        """The device that is hit."""
        if self.link is not None:
            return Endpoint.parse(self.link[0]).host
        return str(self.host or self.device)

    def spec(self) -> FaultSpec:
        """The fault, without its time: that is kept by the task, so that it is the same on
        every device, except for ``on``, which only the device can see."""
        target = Endpoint.parse(self.link[0]).interface if self.link else self.target
        params = dict(self.params)
        if self.on is not None:
            params["on"] = self.on
            if self.after_s:
                params["after_s"] = self.after_s
        return FaultSpec(
            kind=self.kind,
            operation=self.operation,
            target=target,
            count=self.count,
            after=self.after,
            probability=self.probability,
            params=params,
        )


class ClearArgs(TaskArgs):
    """Arguments of ``fault.clear``; without a device, all that this trial has made fail."""

    host: HostName | None = None
    device: DeviceName | None = None


class Injected:
    """The faults of one trial that are still to be undone, by device, in order."""

    def __init__(self) -> None:
        self._undo: dict[str, list[Means]] = {}

    def add(self, context: TaskContext, device: str, means: Means) -> None:
        """Have a fault undone at the end of the trial, at the latest."""
        if device not in self._undo:
            self._undo[device] = []
            context.add_cleanup(
                f"clear the faults of {device}",
                functools.partial(self.clear, device),
                deadline_s=CLEAR_WITHIN_S,
            )
        self._undo[device].append(means)

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(name for name, steps in self._undo.items() if steps)

    async def clear(self, device: str) -> None:
        """Undo the faults of a device, last made first."""
        steps = self._undo.get(device, [])
        while steps:
            await steps[-1].undo()
            steps.pop()


async def inject(context: TaskContext, args: InjectArgs) -> TaskResult:
    """Make a device fail, now or later."""
    device, fault = args.where(), args.spec()
    if args.after_s and args.on is None:
        await trio.lowlevel.checkpoint()
        _means(context, device, fault)  # refuse now what could not be done then

        async def later() -> None:
            await trio.sleep(args.after_s)
            await _inject(context, device, fault)

        context.start_soon(later, name=f"{fault.kind} on {device}")
        return {"device": device, "fault": fault.kind, "scheduled": True}
    await _inject(context, device, fault)
    return {"device": device, "fault": fault.kind, "scheduled": args.on is not None}


async def _inject(context: TaskContext, device: str, fault: FaultSpec) -> None:
    means = _means(context, device, fault)
    # Before it happens: a fault whose injection fails halfway is to be undone too.
    context.resource(Injected, Injected).add(context, device, means)
    sent_s = now_s()
    await means.inject()
    acknowledged_s = now_s()
    record = {"kind": fault.kind, "operation": fault.operation, "target": fault.target}
    context.timeline.event(
        events.FAULT, device=device, fault={k: v for k, v in record.items() if v is not None}
    )
    if fault.operation is None and fault.kind not in CONDITIONS and "on" not in fault.params:
        # It happened somewhere between the two. The earlier one is marked, so that no recovery
        # looks shorter than it was.
        context.timeline.mark(
            INJECTED,
            at_s=sent_s,
            error_s=acknowledged_s - sent_s,
            device=device,
            fault=fault.kind,
        )


def _means(context: TaskContext, device: str, fault: FaultSpec) -> Means:
    if _injectable(context.rack, device):
        twin = context.device(device, FaultInjectable)
        return Means(functools.partial(twin.inject, fault), twin.clear_faults)
    if "on" in fault.params:
        raise RackError(
            f"{device} cannot be told to fail on an operation ({fault.params['on']}): it is a "
            f"{context.rack.devices[device].backend} device",
            remedy="use after_s, or run on a mock rack",
        )
    return ordinary_means(context, device, fault)


def _injectable(rack: Rack, device: str) -> bool:
    entry = rack.devices[device]
    return entry.backend is not Backend.REAL and "fault-injectable" in entry.driver.capabilities


async def clear(context: TaskContext, args: ClearArgs) -> TaskResult:
    """Mend what this trial has made fail."""
    injected = context.resource(Injected, Injected)
    named = args.host or args.device
    devices = (named,) if named is not None else injected.devices
    for device in devices:
        await injected.clear(device)
        context.mark(CLEARED, device=device)
    return {"devices": list(devices)}


def _plan_inject(context: PlanContext, args: InjectArgs) -> TaskPlan:
    device = args.where()
    touched = [device]
    if not _injectable(context.rack, device) and args.kind in ("power-off", "power-on"):
        outlets = outlets_of(context.rack, device, args.target)
        touched += dict.fromkeys(o.controller for o in outlets if o.controller != device)
    at = f" at its next {args.operation}" if args.operation else ""
    when = f" in {args.after_s:g} s" if args.after_s else ""
    trigger = f" on the next {args.on}" if args.on else ""
    return TaskPlan(
        devices=tuple(touched), changes=(f"{args.kind} on {device}{at}{trigger}{when}",)
    )


def _plan_clear(context: PlanContext, args: ClearArgs) -> TaskPlan:
    named = args.host or args.device
    return TaskPlan(
        devices=(named,) if named is not None else (),
        changes=(f"faults of {named or 'all devices'} cleared",),
    )


TASKS = [
    TaskSpec(
        "fault.inject",
        "Make a device fail: now, later, or at one of its next operations.",
        InjectArgs,
        inject,
        plan=_plan_inject,
        deadline_s=DEADLINE_S,
        marks=(INJECTED,),
        result={"device": str, "fault": str, "scheduled": bool},
    ),
    TaskSpec(
        "fault.clear",
        "Mend the devices that were made to fail in this trial.",
        ClearArgs,
        clear,
        plan=_plan_clear,
        deadline_s=DEADLINE_S,
        marks=(CLEARED,),
        result={"devices": list},
    ),
]
