"""``switch.soak``: many random reconfigurations, each read back, with statistics."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from testbed.errors import DeviceError, StateMismatch, TaskFailed
from testbed.hal.capabilities import OpticalSwitch
from testbed.hal.types import Circuit, Port, PortDirection, PortInfo, PortState
from testbed.playbook.args import DeviceName
from testbed.playbook.task import (
    PlanContext,
    TaskArgs,
    TaskContext,
    TaskPlan,
    TaskResult,
    TaskSpec,
)

from .switch import PortText

MARKS = ("soak.started", "soak.finished")
SHOWN_FAILURES = 20


class SoakArgs(TaskArgs):
    """Arguments of ``switch.soak``.

    :ivar rounds: number of reconfigurations.
    :ivar circuits: circuits of each configuration; by default as many as the ports allow.
    :ivar change: circuits that are exchanged in a round; by default all of them.
    :ivar ports: ports that may be used; by default all that are enabled and in no circuit now.
    :ivar tolerate: rounds that may fail before the task does; every failure is in the result.
    """

    switch: DeviceName
    rounds: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    circuits: Annotated[int, Field(ge=1)] | None = None
    change: Annotated[int, Field(ge=1)] | None = None
    ports: tuple[PortText, ...] = ()
    tolerate: Annotated[int, Field(ge=0)] = 0


async def soak(context: TaskContext, args: SoakArgs) -> TaskResult:
    """Reconfigure at random, read back after every round, and put back what was there.

    The read-back is a second one, on top of that inside ``apply``. Circuits on ports that do
    not take part stay through the whole soak. Seeded by the trial.
    """
    switch = context.device(args.switch, OpticalSwitch)
    before = await switch.circuits()
    walk = _Walk.over(args, await switch.ports(), before, context.rng)
    acknowledge_s: list[float] = []
    settle_s: list[float] = []
    failures: list[dict[str, Any]] = []
    failed = changed = 0
    context.mark("soak.started", switch=args.switch, rounds=args.rounds)
    for number in range(args.rounds):
        target = walk.step()
        try:
            report = await switch.apply(target)
            seen = await switch.circuits()
            if seen != target:
                raise StateMismatch(
                    f"switch {args.switch}: round {number} was verified by apply, and reads back "
                    f"differently afterwards: {len(target ^ seen)} circuits differ",
                    device=args.switch,
                    operation="read",
                    differing=sorted(map(str, target ^ seen)),
                )
        except DeviceError as error:
            failed += 1
            if len(failures) < SHOWN_FAILURES:
                failures.append({"round": number, **error.as_record()})
            if failed > args.tolerate:
                error.message += f" (round {number} of {args.rounds}, {failed} failed)"
                raise
            continue
        changed += len(report.added) + len(report.removed)
        if (
            report.sent_s is not None
            and report.acknowledged_s is not None
            and report.verified_s is not None
        ):
            acknowledge_s.append(report.acknowledged_s - report.sent_s)
            settle_s.append(report.verified_s - report.acknowledged_s)
    context.mark("soak.finished", switch=args.switch, failed=failed)
    await switch.apply(before)
    return {
        "rounds": args.rounds,
        "failed": failed,
        "circuits_changed": changed,
        "acknowledge": _statistics(acknowledge_s),
        "verify": _statistics(settle_s),
        "total": _statistics([a + v for a, v in zip(acknowledge_s, settle_s, strict=True)]),
        "failures": failures,
    }


class _Walk:
    """A random walk over valid configurations: one port each, directions respected."""

    def __init__(
        self,
        rng: random.Random,
        ingress: Sequence[Port],
        egress: Sequence[Port],
        kept: frozenset[Circuit],
        size: int,
        change: int,
    ) -> None:
        self._rng = rng
        self._kept = kept
        self._size = size
        self._change = change
        self._now: list[Circuit] = []
        # Ports in a list each, ends swapped in and out: drawing costs no copy of all ports.
        self._free_in = list(ingress)
        self._free_out = list(egress)

    @classmethod
    def over(
        cls,
        args: SoakArgs,
        ports: Mapping[Port, PortInfo],
        before: frozenset[Circuit],
        rng: random.Random,
    ) -> _Walk:
        """The walk that the arguments ask for. :raises TaskFailed: when the ports forbid it."""
        named = frozenset(args.ports)
        unknown = sorted(named - ports.keys())
        if unknown:
            raise TaskFailed(f"switch {args.switch} has no port {', '.join(unknown)}")
        kept = frozenset(c for c in before if not named or named.isdisjoint((c.ingress, c.egress)))
        taken = {port for c in kept for port in (c.ingress, c.egress)}
        usable = [
            info
            for info in ports.values()
            if info.state is PortState.ENABLED
            and info.port not in taken
            and (not named or info.port in named)
        ]
        ingress = [i.port for i in usable if i.direction is PortDirection.INGRESS]
        egress = [i.port for i in usable if i.direction is PortDirection.EGRESS]
        both = [i.port for i in usable if i.direction is PortDirection.BOTH]
        # A port for both ways is used one way only during one soak: half of them enter.
        rng.shuffle(both)
        spread = max(0, min(len(both), (len(egress) - len(ingress) + len(both)) // 2))
        ingress += both[:spread]
        egress += both[spread:]
        most = min(len(ingress), len(egress))
        size = args.circuits or most
        if not 1 <= size <= most:
            raise TaskFailed(
                f"switch {args.switch}: {size} circuits asked for, and the free, enabled ports "
                f"allow {most}",
                remedy="ask for fewer circuits, or clear the switch first",
            )
        return cls(rng, ingress, egress, kept, size, min(args.change or size, size))

    def step(self) -> frozenset[Circuit]:
        """The next configuration."""
        for _ in range(self._change if len(self._now) == self._size else 0):
            gone = _pop(self._now, self._rng)
            self._free_in.append(gone.ingress)
            self._free_out.append(gone.egress)
        while len(self._now) < self._size:
            self._now.append(
                Circuit(_pop(self._free_in, self._rng), _pop(self._free_out, self._rng))
            )
        return self._kept.union(self._now)


def _pop(items: list[Any], rng: random.Random) -> Any:
    """Draw an item out of a list, in constant time; the order of the rest changes."""
    index = int(rng.random() * len(items))
    items[index], items[-1] = items[-1], items[index]
    return items.pop()


def _statistics(values: Sequence[float]) -> dict[str, Any]:
    from testbed.timing.statistics import summarise

    return dict(summarise(values).as_record()) if values else {"n": 0}


def _plan(context: PlanContext, args: SoakArgs) -> TaskPlan:
    return TaskPlan(
        devices=(args.switch,),
        changes=(f"{args.switch}: {args.rounds} random configurations, then as before",),
        estimate_s=None,
    )


TASKS = [
    TaskSpec(
        "switch.soak",
        "Reconfigure a switch many times at random, and read back every time.",
        SoakArgs,
        soak,
        plan=_plan,
        deadline_s=86400.0,
        marks=MARKS,
        result={
            "rounds": int,
            "failed": int,
            "circuits_changed": int,
            "acknowledge": dict,
            "verify": dict,
            "total": dict,
            "failures": list,
        },
    ),
]
