"""Tasks on one optical switch: circuits by port, and optical power."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from testbed.hal.capabilities import OpticalPowerMonitor, OpticalSwitch
from testbed.hal.types import ApplyReport, Circuit
from testbed.playbook.args import DeviceName
from testbed.playbook.task import (
    PlanContext,
    TaskArgs,
    TaskContext,
    TaskPlan,
    TaskResult,
    TaskSpec,
)

SWITCH_MARKS = ("switch.sent", "switch.acknowledged", "switch.verified")


def read_circuit(value: Any) -> Circuit:
    """Read ``in>out`` or ``[in, out]``. :raises ValueError: for any other form."""
    if isinstance(value, Circuit):
        return value
    ports = value.split(">") if isinstance(value, str) else value
    if not isinstance(ports, list | tuple) or len(ports) != 2:
        raise ValueError(f"{value!r} is no circuit; write in>out, as 12>40, or [12, 40]")
    if not all(isinstance(port, str | int) and not isinstance(port, bool) for port in ports):
        raise ValueError(f"{value!r} is no circuit: ports are names or numbers")
    ingress, egress = (str(port).strip() for port in ports)
    if not ingress or not egress:
        raise ValueError(f"{value!r} is no circuit; write in>out, as 12>40")
    return Circuit(ingress, egress)


CircuitText = Annotated[
    Circuit, BeforeValidator(read_circuit), WithJsonSchema({"type": "string", "examples": ["1>2"]})
]
PortText = Annotated[
    str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)
]


class ApplyArgs(TaskArgs):
    """Arguments of ``switch.apply``.

    :ivar circuits: as ``in>out``.
    :ivar keep_others: keep circuits that are not named and use none of the named ports;
        otherwise the named circuits are all that the switch has afterwards.
    """

    switch: DeviceName
    circuits: tuple[CircuitText, ...]
    keep_others: bool = False


async def apply(context: TaskContext, args: ApplyArgs) -> TaskResult:
    """Make the circuits of a switch what is asked, verified by reading back."""
    switch = context.device(args.switch, OpticalSwitch)
    target = frozenset(args.circuits)
    if args.keep_others:
        named = {port for circuit in target for port in (circuit.ingress, circuit.egress)}
        target |= {c for c in await switch.circuits() if named.isdisjoint((c.ingress, c.egress))}
    report = await switch.apply(target)
    if report.changed:
        instants = (report.sent_s, report.acknowledged_s, report.verified_s)
        for name, instant in zip(SWITCH_MARKS, instants, strict=True):
            context.timeline.mark(name, at_s=instant, switch=args.switch)
    return _record(report)


def _record(report: ApplyReport) -> dict[str, Any]:
    acknowledged_s = verified_s = None
    if report.sent_s is not None and report.acknowledged_s is not None:
        acknowledged_s = report.acknowledged_s - report.sent_s
    if report.sent_s is not None and report.verified_s is not None:
        verified_s = report.verified_s - report.sent_s
    return {
        "changed": report.changed,
        "added": [str(c) for c in report.added],
        "removed": [str(c) for c in report.removed],
        "unchanged": report.unchanged,
        "acknowledged_s": acknowledged_s,
        "verified_s": verified_s,
        "light_checked": report.light_checked,
    }


def _plan_apply(context: PlanContext, args: ApplyArgs) -> TaskPlan:
    circuits = ", ".join(str(c) for c in args.circuits) or "none"
    others = "others kept" if args.keep_others else "all others down"
    return TaskPlan(
        devices=(args.switch,),
        changes=(f"circuits of {args.switch}: {circuits}; {others}",),
        estimate_s=0.5,
    )


class PowerArgs(TaskArgs):
    """Arguments of ``switch.power``.

    :ivar ports: ports to read; all when none is named.
    """

    switch: DeviceName
    ports: Annotated[tuple[PortText, ...], Field()] = ()


async def power(context: TaskContext, args: PowerArgs) -> TaskResult:
    """Read the optical power of ports, in dBm."""
    ports = args.ports or tuple(await context.device(args.switch, OpticalSwitch).ports())
    read = await context.device(args.switch, OpticalPowerMonitor).port_power_dbm(ports)
    return {"dbm": dict(read), "lowest_dbm": min(read.values(), default=None)}


def _plan_power(context: PlanContext, args: PowerArgs) -> TaskPlan:
    return TaskPlan(devices=(args.switch,), estimate_s=0.1)


TASKS = [
    TaskSpec(
        "switch.apply",
        "Make the circuits of one switch what is asked.",
        ApplyArgs,
        apply,
        plan=_plan_apply,
        marks=SWITCH_MARKS,
        result={
            "changed": bool,
            "added": list,
            "removed": list,
            "unchanged": int,
            "acknowledged_s": float,
            "verified_s": float,
            "light_checked": bool,
        },
    ),
    TaskSpec(
        "switch.power",
        "Read the optical power of ports of a switch.",
        PowerArgs,
        power,
        plan=_plan_power,
        result={"dbm": dict, "lowest_dbm": float},
        short="switch",
    ),
]
