"""Values that capabilities exchange. All times in seconds, power in dBm or watts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Port = str
"""A named place for one fibre, as the device itself names it (``"12"``, ``"1.1.3"``)."""


class Backend(StrEnum):
    """What a device really is. Every stored value says which it came from."""

    REAL = "real"
    EMULATED = "emulated"  # our server, the real protocol, the real driver
    MOCK = "mock"  # a twin in this process


@dataclass(frozen=True, slots=True)
class Identity:
    """What a device says it is."""

    vendor: str
    model: str
    serial: str = ""
    firmware: str = ""


# --- optical -------------------------------------------------------------------------------


class PortDirection(StrEnum):
    """Which way light passes a port, seen from the switch."""

    INGRESS = "ingress"
    EGRESS = "egress"
    BOTH = "both"


class PortState(StrEnum):
    """Whether a port may be used."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class PortInfo:
    """A port with its direction and state."""

    port: Port
    direction: PortDirection
    state: PortState = PortState.ENABLED


@dataclass(frozen=True, slots=True, order=True)
class Circuit:
    """Light from one port to another, one way."""

    ingress: Port
    egress: Port

    def __str__(self) -> str:
        return f"{self.ingress}>{self.egress}"


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """What an ``apply`` changed, and its three instants on :func:`testbed.timing.clock.now_s`.

    An acknowledgement is not a measurement of light: ``verified_s`` is the instant at which
    the light was seen (where the device can see it) and the state was read back as asked.
    The instants are ``None`` when nothing had to be changed.
    """

    added: tuple[Circuit, ...] = ()
    removed: tuple[Circuit, ...] = ()
    unchanged: int = 0
    sent_s: float | None = None
    acknowledged_s: float | None = None
    verified_s: float | None = None
    light_checked: bool = False

    @property
    def changed(self) -> bool:
        return bool(self.added or self.removed)


class CellState(StrEnum):
    """State of one programmable unit cell (a 2x2 gate) of a photonic mesh."""

    BAR = "bar"
    CROSS = "cross"


# --- hosts ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Exit status and output of a finished command."""

    argv: tuple[str, ...]
    exit_status: int
    stdout: str = ""
    stderr: str = ""


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A process on a host that was started by this framework."""

    pid: int
    argv: tuple[str, ...]
    tag: str


@dataclass(frozen=True, slots=True)
class HostHealth:
    """``boot_id`` changes with every boot, which is how an unseen reboot is noticed."""

    boot_id: str
    uptime_s: float


class Carrier(StrEnum):
    """Whether an interface sees its peer."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class NicState:
    """One data interface of a host.

    :param rate_bps: negotiated line rate in bits per second; 0 while down.
    :param rx_power_dbm: received optical power where the transceiver tells, else ``None``.
    """

    interface: str
    enabled: bool
    carrier: Carrier
    rate_bps: float
    rx_power_dbm: float | None = None


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU of a host."""

    index: int
    uuid: str
    model: str
    healthy: bool
    temperature_c: float
    power_w: float
    memory_total_bytes: int
    ecc_uncorrected: int = 0


@dataclass(frozen=True, slots=True)
class GpuError:
    """An error event of a GPU, as an NVIDIA XID. ``at_s`` is on the host's own clock."""

    gpu: int
    xid: int
    message: str
    at_s: float


# --- power ---------------------------------------------------------------------------------


class OutletState(StrEnum):
    """Whether an outlet gives power."""

    ON = "on"
    OFF = "off"


# --- faults --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """A fault to inject into a twin or an emulator.

    Either an *event* (``operation`` is ``None``: it happens now, as ``power-off`` or
    ``fibre-cut``) or a *condition* on an operation (``refuse``, ``silent``, ``slow``,
    ``garbage``, ``drop``, ``partial``, ``lie``), met on its next ``count`` executions, each
    with ``probability``.

    :param kind: name of the fault, out of ``FaultInjectable.fault_kinds()``.
    :param operation: device operation (``send``, ``read``, ``run``, ``switch``, ``*``).
    :param target: what is hit: a port, an outlet, an interface, a GPU index, a process tag.
    :param count: how many executions are hit; ``None`` = until cleared.
    :param after: how many executions pass unharmed before.
    """

    kind: str
    operation: str | None = None
    target: str | None = None
    count: int | None = 1
    after: int = 0
    probability: float = 1.0
    params: Mapping[str, Any] = field(default_factory=dict)
