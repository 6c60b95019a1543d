"""A bench of mock twins, and the context of a task that runs on it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import trio

from devices.mock.rack import mock_rack
from testbed.engine.tasks import TASKS
from testbed.errors import RackError
from testbed.hal.wiring import Endpoint, Feed, Fibre, OutletRef, SwitchPort, Wiring
from testbed.rack.fabric import SwitchFabric
from testbed.rack.links import Link
from testbed.rack.rack import Rack, SafeState
from testbed.timing.clock import run
from testbed.timing.marks import Timeline

HOSTS = 4
SPECS = {spec.name: spec for spec in TASKS}


def _wiring() -> Wiring:
    fibres, feeds, port = [], [], 1
    for host in range(HOSTS):
        for interface in ("p0", "p1"):
            for transmits in (True, False):
                end = Endpoint(f"host{host}", interface)
                fibres.append(Fibre(end, SwitchPort("ocs0", str(port)), transmits))
                port += 1
        feeds += [Feed(OutletRef(f"pdu{n}", str(host + 1)), f"host{host}") for n in (0, 1)]
    return Wiring.of(fibres, feeds)


class Bench:
    """Four hosts with two interfaces and two feeds each, one switch of 24 ports, two PDUs.

    It is also the context of the tasks: what :class:`~testbed.playbook.task.TaskContext` asks.
    """

    run_id, trial, virtual = "bench", 0, True

    def __init__(self, switch: dict[str, Any] | None = None, seed: int = 1) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.rack = Rack(
            name="bench",
            source="",
            text="",
            sha256="",
            devices={},
            wiring=_wiring(),
            safe_state=SafeState(),
        )
        self.events: list[dict[str, Any]] = []
        self.artefacts: dict[str, str] = {}
        self._options = {
            "ocs0": ("circuit-switch", {"ports": 24, **(switch or {})}),
            **{f"pdu{n}": ("pdu", {}) for n in (0, 1)},
            **{f"host{n}": ("gpu-host", {}) for n in range(HOSTS)},
        }
        self._resources: dict[type, Any] = {}
        self.links: set[Link] = set()  # of the plan

    def run(self, scenario: Callable[[Bench], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            async with mock_rack(self._options, self.rack.wiring, seed=self.seed) as twins:
                self.twins = twins
                self.timeline = Timeline(self.events.append)
                self.fabric = SwitchFabric(
                    self.rack, twins.__getitem__, twins.__getitem__, self.timeline
                )
                async with trio.open_nursery() as self.nursery:
                    result = await scenario(self)
                    self.nursery.cancel_scope.cancel()
            return result

        return run(main, virtual=True, seed=self.seed)

    async def do(self, task: str, **args: Any) -> dict[str, Any]:
        """Run one task as the engine would: arguments validated, the result checked."""
        spec = SPECS[task]
        result = await spec.run(self, spec.args.model_validate(args))
        result = dict(result or {})
        if spec.result:
            assert set(result) == set(spec.result), f"{task} does not return what it declares"
            for name, kind in spec.result.items():
                value = result[name]
                if value is not None and not (kind is float and isinstance(value, int)):
                    assert isinstance(value, kind), f"{task}: {name} is {value!r}"
        assert all(
            any(mark.name == m or m == "*" for m in spec.marks)
            for mark in self.timeline.marks[self._marks_seen :]
        ), f"{task} sets marks that it does not declare"
        self._marks_seen = len(self.timeline.marks)
        return result

    _marks_seen = 0

    def plan(self, task: str, **args: Any) -> Any:
        spec = SPECS[task]
        return spec.plan(self, spec.args.model_validate(args))

    def marks(self) -> list[str]:
        return [mark.name for mark in self.timeline.marks]

    # --- TaskContext
    def device(self, name: str, capability: type) -> Any:
        if not isinstance(self.twins[name], capability):
            raise RackError(f"{name} is no {capability.__name__}")
        return self.twins[name]

    def mark(self, name: str, **fields: Any) -> Any:
        return self.timeline.mark(name, **fields)

    def span(self, name: str, **fields: Any) -> AbstractContextManager[Any]:
        return self.timeline.span(name, **fields)

    def log(self, message: str, **fields: Any) -> None:
        self.timeline.event("log", message=message, **fields)

    def start_soon(self, work: Callable[[], Awaitable[None]], *, name: str) -> None:
        self.nursery.start_soon(work, name=name)

    def resource(self, kind: type, make: Callable[[], Any]) -> Any:
        return self._resources.setdefault(kind, make())

    def artefact(self, name: str, text: str) -> str:
        self.artefacts[name] = text
        return f"artefacts/{name}"


@pytest.fixture
def make_bench() -> Callable[..., Bench]:
    return Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()
