"""Drivers by name, found through the entry-point group ``testbed.drivers``.

A lab adds a driver in one file and one entry-point line::

    [project.entry-points."testbed.drivers"]
    my-switch = "my_lab.my_switch:DRIVER"
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from testbed.errors import InternalError
from testbed.hal.capabilities import Device
from testbed.hal.types import Backend
from testbed.hal.wiring import Wiring

DeviceKind = Literal["switch", "host", "power"]
Shared = TypeVar("Shared")


@dataclass
class DriverContext:
    """What a driver may know beyond its own options.

    :param rack: name of the rack.
    :param wiring: fibres and feeds of the rack, for twins that share a simulated world.
    :param seed: seed of every random draw of the twins.
    :param virtual: whether the run is in virtual time; only mock devices allow it.
    :param state_path: file in which a mock world keeps its state between commands, so that
        a mock rack can be switched by hand and recovered as a real one; ``None`` = private
        to this run.
    """

    rack: str
    wiring: Wiring
    seed: int = 0
    virtual: bool = False
    state_path: str | None = None
    _shared: dict[str, Any] = field(default_factory=dict)

    def shared(self, key: str, make: Callable[[], Shared]) -> Shared:
        """One object for all devices of this rack session, made by the first that asks."""
        if key not in self._shared:
            self._shared[key] = make()
        value: Shared = self._shared[key]
        return value

    def rng(self, name: str) -> random.Random:
        """A generator of its own for each name, so that draws do not depend on the order of use."""
        return random.Random(f"{self.seed}/{self.rack}/{name}")


@dataclass(frozen=True)
class DriverSpec:
    """A driver as it is registered.

    :param name: name in rack files.
    :param kind: ``switch``, ``host`` or ``power``.
    :param summary: one line for ``testbed devices --drivers``.
    :param options: pydantic model of its section of the rack file.
    :param capabilities: names out of :data:`testbed.hal.capabilities.CAPABILITIES`.
    :param backends: per backend, a factory ``(name, options, context) -> device``. Making a
        device must not connect to it: ``open`` does.
    """

    name: str
    kind: DeviceKind
    summary: str
    options: type[BaseModel]
    capabilities: frozenset[str]
    backends: Mapping[Backend, Callable[[str, Any, DriverContext], Device]]


def driver_names() -> tuple[str, ...]:
    """Names of all installed drivers, sorted, without importing any."""
    return tuple(sorted({point.name for point in entry_points(group="testbed.drivers")}))


@functools.cache
def driver(name: str) -> DriverSpec:
    """The driver of that name.

    :raises KeyError: when none is installed under that name.
    :raises InternalError: when its entry point is broken.
    """
    points = [p for p in entry_points(group="testbed.drivers") if p.name == name]
    if not points:
        raise KeyError(name)
    try:
        spec = points[0].load()
    except Exception as error:
        raise InternalError(
            f"driver {name!r} ({points[0].value}) cannot be loaded: {error}",
            remedy="reinstall or remove the package that provides it",
        ) from error
    if not isinstance(spec, DriverSpec) or spec.name != name:
        raise InternalError(
            f"entry point {name!r} ({points[0].value}) is no DriverSpec of that name"
        )
    return spec
