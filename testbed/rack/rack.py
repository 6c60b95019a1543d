"""A rack as it is after its file has been read and checked: devices, wiring, safe state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from testbed.hal.registry import DriverSpec
from testbed.hal.types import Backend, Circuit, OutletState
from testbed.hal.wiring import OutletRef, Wiring


@dataclass(frozen=True)
class DeviceEntry:
    """One device of the rack file, with its options validated by the driver's own model."""

    name: str
    driver: DriverSpec
    backend: Backend
    options: BaseModel


@dataclass(frozen=True)
class SafeState:
    """What the rack must look like when nobody uses it.

    :param circuits: per switch, the circuits to leave, or ``keep`` to leave them as they are.
    :param outlets: outlets with the state to leave them in; others are left as they are.
    :param processes: whether processes of the run are killed on every host.
    """

    circuits: Mapping[str, tuple[Circuit, ...] | Literal["keep"]] = field(default_factory=dict)
    outlets: Mapping[OutletRef, OutletState] = field(default_factory=dict)
    processes: Literal["kill", "keep"] = "kill"


@dataclass(frozen=True)
class Rack:
    """A checked rack.

    :param source: path of its file, or ``builtin:NAME``.
    :param text: the file as read, kept with every run.
    :param sha256: hash of ``text``.
    :param deadlines_s: per operation name, the deadline in seconds that replaces the default.
    """

    name: str
    source: str
    text: str
    sha256: str
    devices: Mapping[str, DeviceEntry]
    wiring: Wiring
    safe_state: SafeState
    deadlines_s: Mapping[str, float] = field(default_factory=dict)
    description: str = ""

    @property
    def reference(self) -> str:
        """What to give to ``--rack`` for this rack."""
        return self.source.removeprefix("builtin:")

    def of_kind(self, kind: str) -> tuple[str, ...]:
        """Names of the devices of one kind (``switch``, ``host``, ``power``), in file order."""
        return tuple(n for n, d in self.devices.items() if d.driver.kind == kind)

    def having(self, capability: str) -> tuple[str, ...]:
        """Names of the devices whose driver has that capability, in file order."""
        return tuple(n for n, d in self.devices.items() if capability in d.driver.capabilities)

    @property
    def backends(self) -> Mapping[str, str]:
        return {name: str(device.backend) for name, device in self.devices.items()}

    @property
    def backend_label(self) -> str:
        """``mock``, ``emulated`` or ``real`` when all devices agree, else ``mixed``."""
        kinds = {d.backend for d in self.devices.values()}
        return str(next(iter(kinds))) if len(kinds) == 1 else "mixed"

    def describe(self) -> dict[str, Any]:
        """The rack as stored with a run."""
        return {
            "name": self.name,
            "source": self.source,
            "sha256": self.sha256,
            "backend": self.backend_label,
            "devices": {
                name: {"driver": d.driver.name, "backend": str(d.backend)}
                for name, d in self.devices.items()
            },
        }
