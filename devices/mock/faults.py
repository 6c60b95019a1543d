"""Faults of simulated devices: conditions met at operations, and events that happen at once.

Conditions are the same for all devices and live here; which events there are is up to each
twin. Everything is drawn from the device's own seeded generator, so that a seed gives the
same faults at the same operations.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from testbed.hal.types import FaultSpec

CONDITIONS: Mapping[str, str] = MappingProxyType(
    {
        "slow": "an operation takes `factor` times as long (10), and `delay_s` more (0)",
        "refuse": "an operation is refused, and nothing is done",
        "silent": "no answer, ever; with `at: receive` the operation is done nevertheless",
        "garbage": "an answer that cannot be understood; with `at: receive` it is done anyway",
        "drop": "the connection breaks midway, and a change is done in part; "
        "`at: send` nothing is done, `at: receive` all of it",
        "late": "the operation is done at once and answered `delay_s` later (5)",
        "partial": "a change is done for its first half only, and acknowledged",
        "lie": "a change is acknowledged and reads back as asked, and nothing is done",
        "unreachable": "no connection can be made, until the fault is cleared",
    }
)
"""Kinds of conditions, with their parameters and defaults."""

Hook = Callable[[str], Awaitable[None] | None]


@dataclass(slots=True)
class _Armed:
    spec: FaultSpec
    left: int | None
    passed: int = 0


class FaultBox:
    """The conditions of one device.

    :param rng: generator for probabilities and garbage.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._armed: list[_Armed] = []
        self._hooks: list[tuple[str, Hook]] = []

    @property
    def idle(self) -> bool:
        """Whether no operation can be hit, which is nearly always."""
        return not self._armed and not self._hooks

    def arm(self, spec: FaultSpec) -> None:
        """Have the next matching operations hit."""
        forever = spec.kind == "unreachable" and spec.operation is None
        self._armed.append(_Armed(spec, None if forever else spec.count))

    def clear(self) -> None:
        """Forget all conditions; hooks stay."""
        self._armed.clear()

    def hook(self, operation: str, call: Hook) -> Callable[[], None]:
        """Have ``call(operation)`` called before each matching operation, for tests; it may be
        a coroutine function, and what it raises the operation raises. Returns a function
        that takes the hook back."""
        entry = (operation, call)
        self._hooks.append(entry)
        return lambda: self._hooks.remove(entry) if entry in self._hooks else None

    async def call_hooks(self, operation: str, *, changes: bool) -> None:
        """Call the hooks of an operation, in the order of their addition."""
        for wanted, call in tuple(self._hooks):
            if matches(wanted, operation, changes=changes):
                result = call(operation)
                if inspect.isawaitable(result):
                    await result

    def meet(self, operation: str, *, changes: bool) -> FaultSpec | None:
        """The condition that hits this execution of an operation, if one does; the condition
        that was armed first goes first."""
        for armed in self._armed:
            spec = armed.spec
            if not matches(spec.operation or "*", operation, changes=changes):
                continue
            armed.passed += 1
            if armed.passed <= spec.after or (
                spec.probability < 1.0 and self.rng.random() >= spec.probability
            ):
                continue
            if armed.left is not None:
                armed.left -= 1
                if armed.left <= 0:
                    self._armed.remove(armed)
            return spec
        return None

    def garbage(self) -> str:
        """An answer that no protocol allows."""
        return bytes(self.rng.randrange(33, 127) for _ in range(12)).decode()


ALIASES: Mapping[str, str] = MappingProxyType({"apply": "send", "connect": "open"})
"""Words of people for operations: an ``apply`` is hit where it sends."""


def matches(wanted: str, operation: str, *, changes: bool) -> bool:
    """Whether a fault of operation ``wanted`` concerns this one: by name; ``*`` is any,
    ``read`` any that changes nothing, ``write`` any that does."""
    wanted = ALIASES.get(wanted, wanted)
    if wanted == operation or wanted == "*":
        return True
    return (wanted == "write" and changes) or (
        wanted == "read" and not changes and operation not in ("open", "close")
    )
