"""Tasks on data interfaces of hosts."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from testbed.errors import DeviceRefused, StateMismatch
from testbed.hal.capabilities import NicHost
from testbed.hal.types import Carrier, NicState
from testbed.hal.wiring import Endpoint
from testbed.playbook.args import InterfaceName
from testbed.playbook.task import (
    PlanContext,
    TaskArgs,
    TaskContext,
    TaskPlan,
    TaskResult,
    TaskSpec,
)
from testbed.rack.carriers import await_carrier
from testbed.timing.clock import now_s
from testbed.timing.quantity import Seconds


class InterfaceArgs(TaskArgs):
    """Arguments of ``nic.status``.

    :ivar interface: ``host.interface``.
    """

    interface: InterfaceName

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint.parse(self.interface)


class WaitArgs(InterfaceArgs):
    """Arguments of ``nic.wait``."""

    carrier: Carrier = Carrier.UP
    within: Annotated[Seconds, Field(gt=0)] = 10.0


class SetArgs(InterfaceArgs):
    """Arguments of ``nic.set``."""

    enabled: bool


async def status(context: TaskContext, args: InterfaceArgs) -> TaskResult:
    """Read the state of an interface."""
    return _record(await _state(context, args.endpoint))


async def wait(context: TaskContext, args: WaitArgs) -> TaskResult:
    """Wait until an interface has, or has lost, its carrier."""
    start_s = now_s()
    end = args.endpoint
    nic = context.device(end.host, NicHost)
    seen = await await_carrier(nic, end, args.carrier, within_s=args.within)
    context.mark(f"nic.carrier-{args.carrier}", interface=args.interface)
    return {**_record(seen), "waited_s": now_s() - start_s}


async def set_enabled(context: TaskContext, args: SetArgs) -> TaskResult:
    """Enable or disable an interface, and read back that it is so."""
    end = args.endpoint
    await context.device(end.host, NicHost).set_interface(end.interface, enabled=args.enabled)
    seen = await _state(context, end)
    if seen.enabled is not args.enabled:
        raise StateMismatch(
            f"interface {end} reads {'enabled' if seen.enabled else 'disabled'} after it was "
            f"{'enabled' if args.enabled else 'disabled'}",
            device=end.host,
            operation="set_interface",
        )
    return _record(seen)


async def _state(context: TaskContext, end: Endpoint) -> NicState:
    states = await context.device(end.host, NicHost).interfaces()
    try:
        return states[end.interface]
    except KeyError:
        raise DeviceRefused(
            f"host {end.host} has no interface {end.interface}",
            device=end.host,
            operation="interfaces",
            remedy=f"its interfaces are {', '.join(states)}",
        ) from None


def _record(state: NicState) -> dict[str, Any]:
    return {
        "enabled": state.enabled,
        "carrier": str(state.carrier),
        "rate_bps": state.rate_bps,
        "rx_power_dbm": state.rx_power_dbm,
    }


def _plan_read(context: PlanContext, args: InterfaceArgs) -> TaskPlan:
    return TaskPlan(devices=(args.endpoint.host,), estimate_s=0.1)


def _plan_wait(context: PlanContext, args: WaitArgs) -> TaskPlan:
    return TaskPlan(
        devices=(args.endpoint.host,),
        estimate_s=None,
        nested_deadlines_s={"within": args.within},
    )


def _plan_set(context: PlanContext, args: SetArgs) -> TaskPlan:
    return TaskPlan(
        devices=(args.endpoint.host,),
        changes=(f"interface {args.interface} {'enabled' if args.enabled else 'disabled'}",),
        estimate_s=0.2,
    )


_STATE = {"enabled": bool, "carrier": str, "rate_bps": float, "rx_power_dbm": float}

TASKS = [
    TaskSpec(
        "nic.status",
        "Read the state of a data interface.",
        InterfaceArgs,
        status,
        plan=_plan_read,
        result=_STATE,
        short="interface",
    ),
    TaskSpec(
        "nic.wait",
        "Wait until a data interface has, or has lost, its carrier.",
        WaitArgs,
        wait,
        plan=_plan_wait,
        marks=("nic.carrier-up", "nic.carrier-down"),
        result={**_STATE, "waited_s": float},
        short="interface",
    ),
    TaskSpec(
        "nic.set",
        "Enable or disable a data interface.",
        SetArgs,
        set_enabled,
        plan=_plan_set,
        result=_STATE,
    ),
]
