"""Faults by ordinary means, on devices that cannot be told to misbehave.

The same playbook injects its faults on a mock rack, where a twin simply fails, and on a real
one: there a host loses power through its outlets, a process is killed or stopped by a signal,
and an interface is switched off. Whatever else is asked for there is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from testbed.errors import RackError
from testbed.hal.capabilities import Host, NicHost, PowerController
from testbed.hal.feeds import switch_feeds
from testbed.hal.types import FaultSpec, OutletState
from testbed.hal.wiring import OutletRef
from testbed.playbook.task import TaskContext
from testbed.rack.rack import Rack

Step = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Means:
    """How a fault is made, and how it is undone."""

    inject: Step
    undo: Step


ORDINARY = ("process-kill", "process-hang", "power-off", "power-on", "nic-down")
"""Faults that need no twin."""


def ordinary_means(context: TaskContext, device: str, fault: FaultSpec) -> Means:
    """How to inject this fault without the help of the device.

    :raises RackError: when there is no way.
    """
    rack = context.rack
    entry = rack.devices[device]
    has = entry.driver.capabilities
    if fault.operation is None:
        match fault.kind:
            case "power-off" | "power-on" if entry.driver.kind in ("host", "power"):
                state = OutletState.OFF if fault.kind == "power-off" else OutletState.ON
                return _power(context, outlets_of(rack, device, fault.target), state)
            case "process-kill" if "host" in has:
                return _kill(context, device, fault.target or context.run_id)
            case "process-hang" if "host" in has:
                return _hang(context, device, fault.target or context.run_id)
            case "nic-down" if "nic-host" in has:
                return _nic_down(context, device, fault.target)
    what = f"{fault.kind} at {fault.operation}" if fault.operation else fault.kind
    raise RackError(
        f"the fault {what} cannot be injected on {device}: it is a {entry.backend} device "
        f"({entry.driver.name}), and only twins and emulators misbehave on demand",
        remedy=f"use one of {', '.join(ORDINARY)}, or run on a mock rack",
        device=device,
        fault=fault.kind,
    )


def outlets_of(rack: Rack, device: str, target: str | None) -> tuple[OutletRef, ...]:
    """The outlets that a power fault of ``device`` concerns: those that feed a host, or the
    target outlet of a controller. :raises RackError: when there is none."""
    if rack.devices[device].driver.kind == "power":
        if target is None:
            raise RackError(
                f"a power fault of the controller {device} needs an outlet",
                remedy="name it as the target",
            )
        return (OutletRef(device, target),)
    feeds = rack.wiring.feeds_of(device)
    if not feeds:
        raise RackError(
            f"no outlet feeds host {device}, so that its power cannot be switched",
            remedy="add its feeds under wiring.feeds of the rack file",
        )
    return feeds


def _power(context: TaskContext, outlets: Sequence[OutletRef], state: OutletState) -> Means:
    async def switch(to: OutletState) -> None:
        await switch_feeds(outlets, to, lambda name: context.device(name, PowerController))

    opposite = OutletState.ON if state is OutletState.OFF else OutletState.OFF
    return Means(functools.partial(switch, state), functools.partial(switch, opposite))


def _kill(context: TaskContext, device: str, tag: str) -> Means:
    async def kill() -> None:
        if await context.device(device, Host).kill(tag) == 0:
            raise _no_process(device, tag)

    async def nothing() -> None:
        """A killed process stays dead."""

    return Means(kill, nothing)


def _hang(context: TaskContext, device: str, tag: str) -> Means:
    stopped: list[str] = []

    async def send(signal: str, pids: Sequence[str]) -> None:
        await context.device(device, Host).run(["kill", f"-{signal}", *pids])

    async def stop() -> None:
        stopped.extend(str(p.pid) for p in await context.device(device, Host).processes(tag))
        if not stopped:
            raise _no_process(device, tag)
        await send("STOP", stopped)

    async def go_on() -> None:
        if stopped:
            await send("CONT", stopped)

    return Means(stop, go_on)


def _no_process(device: str, tag: str) -> RackError:
    return RackError(
        f"no process with tag {tag} runs on {device}; nothing was hit",
        remedy="start one there before the fault",
        device=device,
    )


def _nic_down(context: TaskContext, device: str, target: str | None) -> Means:
    async def switch(enabled: bool) -> None:
        nic = context.device(device, NicHost)
        for name in await nic.interfaces() if target is None else (target,):
            await nic.set_interface(name, enabled=enabled)

    return Means(functools.partial(switch, False), functools.partial(switch, True))
