"""Tasks on power: hosts over all their feeds, or single outlets; every switching is verified."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from testbed.errors import RackError
from testbed.hal.capabilities import PowerController, PowerMeter
from testbed.hal.feeds import FeedsReport, cycle_feeds, read_feeds, switch_feeds
from testbed.hal.together import gather
from testbed.hal.types import OutletState
from testbed.hal.wiring import OutletRef
from testbed.playbook.args import HostName
from testbed.playbook.task import (
    PlanContext,
    TaskArgs,
    TaskContext,
    TaskPlan,
    TaskResult,
    TaskSpec,
)
from testbed.rack.rack import Rack
from testbed.source.suggest import did_you_mean
from testbed.timing.quantity import Seconds


def _outlet(text: str, info: ValidationInfo) -> str:
    controller = _parse_outlet(text).controller
    if info.context and controller not in info.context.devices:
        raise ValueError(
            f"{text!r}: the rack has no device {controller!r}; "
            f"{did_you_mean(controller, info.context.devices)}"
        )
    return text


def _parse_outlet(text: str) -> OutletRef:
    controller, dot, outlet = text.partition(".")
    if not (controller and dot and outlet):
        raise ValueError(f"{text!r} is no outlet; write controller.outlet, as pdu0.3")
    return OutletRef(controller, outlet)


OutletText = Annotated[str, AfterValidator(_outlet)]


class TargetArgs(TaskArgs):
    """What to switch or read: a host, which means all of its feeds, or outlets by name."""

    host: HostName | None = None
    outlets: tuple[OutletText, ...] = ()

    @model_validator(mode="after")
    def _one(self) -> TargetArgs:
        if (self.host is None) == (not self.outlets):
            raise ValueError("give either host or outlets")
        return self

    def feeds(self, rack: Rack) -> tuple[OutletRef, ...]:
        """The outlets. :raises RackError: for a host without feeds."""
        if self.host is None:
            return tuple(dict.fromkeys(_parse_outlet(text) for text in self.outlets))
        feeds = rack.wiring.feeds_of(self.host)
        if not feeds:
            raise RackError(
                f"host {self.host} has no feed in rack {rack.name}",
                remedy="add its outlets under wiring.feeds of the rack file",
            )
        return feeds

    @property
    def what(self) -> str:
        return self.host or ", ".join(self.outlets)


class SwitchArgs(TargetArgs):
    """Arguments of ``power.on`` and ``power.off``.

    :ivar verify_within: time for the read-back to follow the acknowledgement.
    """

    verify_within: Annotated[Seconds, Field(gt=0)] = 10.0


class CycleArgs(SwitchArgs):
    """Arguments of ``power.cycle``.

    :ivar pause: from the moment at which every feed is verified off to the command on.
    """

    pause: Seconds = 5.0


async def switch(state: OutletState, context: TaskContext, args: SwitchArgs) -> TaskResult:
    """Switch, and wait until every outlet reads back as asked."""
    report = await switch_feeds(
        args.feeds(context.rack),
        state,
        lambda name: context.device(name, PowerController),
        verify_s=args.verify_within,
    )
    _mark(context, report, args.what)
    return {"changed": report.changed, **_record(report)}


async def cycle(context: TaskContext, args: CycleArgs) -> TaskResult:
    """Off, verified off on every feed, pause, on, verified on."""
    off, on = await cycle_feeds(
        args.feeds(context.rack),
        lambda name: context.device(name, PowerController),
        pause_s=args.pause,
        verify_s=args.verify_within,
    )
    _mark(context, off, args.what)
    _mark(context, on, args.what)
    return {"off": _record(off), "on": _record(on), "off_s": on.sent_s - off.verified_s}


async def status(context: TaskContext, args: TargetArgs) -> TaskResult:
    """Read the state of outlets; a host has power when any of its feeds is on."""
    seen = await read_feeds(
        args.feeds(context.rack), lambda name: context.device(name, PowerController)
    )
    return {
        "outlets": {str(feed): str(state) for feed, state in seen.items()},
        "on": OutletState.ON in seen.values(),
        "all_on": all(state is OutletState.ON for state in seen.values()),
    }


async def read(context: TaskContext, args: TargetArgs) -> TaskResult:
    """Read electrical power, in watts, and the sum over the feeds."""
    feeds = args.feeds(context.rack)
    names = tuple(dict.fromkeys(feed.controller for feed in feeds))
    read = await gather({name: context.device(name, PowerMeter).outlet_power_w for name in names})
    watts = {str(feed): _reading(read[feed.controller], feed) for feed in feeds}
    return {"outlets_w": watts, "total_w": sum(watts.values())}


def _reading(watts: Mapping[str, float], feed: OutletRef) -> float:
    try:
        return watts[feed.outlet]
    except KeyError:
        raise RackError(
            f"{feed.controller} measures no outlet {feed.outlet}",
            remedy=f"it measures {', '.join(watts)}",
        ) from None


def _mark(context: TaskContext, report: FeedsReport, what: str) -> None:
    """Set the marks, and log the settle time of every controller that switched."""
    if not report.changed:
        return
    context.timeline.mark(f"power.{report.state}-sent", at_s=report.sent_s, target=what)
    context.timeline.mark(f"power.{report.state}-verified", at_s=report.verified_s, target=what)
    for name, part in report.controllers.items():
        if part.changed:
            context.log(
                f"{name}: outlet {', '.join(part.commanded)} read {part.state} "
                f"{part.settle_s:.3f} s after the acknowledgement",
                settle_s=part.settle_s,
            )


def _record(report: FeedsReport) -> dict[str, Any]:
    outlets = [f"{name}.{o}" for name, part in report.controllers.items() for o in part.outlets]
    return {
        "outlets": outlets,
        "settle_s": report.settle_s,
        "verified_s": report.verified_s - report.sent_s,
    }


def _devices(context: PlanContext, args: TargetArgs) -> tuple[str, ...]:
    return tuple(dict.fromkeys(feed.controller for feed in args.feeds(context.rack)))


def _plan_switch(what: str, context: PlanContext, args: SwitchArgs) -> TaskPlan:
    pause_s = args.pause if isinstance(args, CycleArgs) else 0.0
    return TaskPlan(
        devices=_devices(context, args),
        changes=tuple(f"outlet {feed} {what}" for feed in args.feeds(context.rack)),
        estimate_s=1.0 + pause_s,
        nested_deadlines_s={"verify_within": args.verify_within},
    )


def _plan_read(context: PlanContext, args: TargetArgs) -> TaskPlan:
    return TaskPlan(devices=_devices(context, args), estimate_s=0.5)


def _switching(state: OutletState) -> TaskSpec:
    return TaskSpec(
        f"power.{state}",
        f"Switch a host, over all its feeds, or outlets {state}; verified.",
        SwitchArgs,
        partial(switch, state),
        plan=partial(_plan_switch, str(state)),
        marks=(f"power.{state}-sent", f"power.{state}-verified"),
        result={"changed": bool, "outlets": list, "settle_s": float, "verified_s": float},
        short="host",
    )


TASKS = [
    _switching(OutletState.ON),
    _switching(OutletState.OFF),
    TaskSpec(
        "power.cycle",
        "Switch off, verify, pause, switch on, verify: a host over all its feeds, or outlets.",
        CycleArgs,
        cycle,
        plan=partial(_plan_switch, "off, then on"),
        deadline_s=60.0,
        marks=("power.off-sent", "power.off-verified", "power.on-sent", "power.on-verified"),
        result={"off": dict, "on": dict, "off_s": float},
        short="host",
    ),
    TaskSpec(
        "power.status",
        "Read whether outlets, or the feeds of a host, are on.",
        TargetArgs,
        status,
        plan=_plan_read,
        result={"outlets": dict, "on": bool, "all_on": bool},
        short="host",
    ),
    TaskSpec(
        "power.read",
        "Read electrical power of outlets, or of a host over all its feeds, in watts.",
        TargetArgs,
        read,
        plan=_plan_read,
        result={"outlets_w": dict, "total_w": float},
        short="host",
    ),
]
