"""Default figures of the simulated devices, in one place, and why they are what they are.

Every duration is a :class:`~testbed.timing.distribution.Distribution` and is drawn anew at each
operation. A device names a *class* (``class: piezo``), which gives all its figures; ``timing:``
replaces single ones::

    ocs: {driver: circuit-switch, class: mems, timing: {switching: 12 ms}}

The figures are configuration defaults of a technology, not measurements of a product: an
experiment that depends on one should state its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from testbed.timing.distribution import Distribution, Uniform

Model = TypeVar("Model", bound=BaseModel)

_constant = Distribution.constant
_lognormal = Distribution.lognormal


def _uniform(low_s: float, high_s: float) -> Distribution:
    return Distribution(of=Uniform(kind="uniform", low=low_s, high=high_s))


class _Timing(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


# --- optical switches ----------------------------------------------------------------------

# A command over Ethernet to an embedded controller costs about a millisecond, TL1 and NETCONF
# stacks several; a robot is driven through a server.


class SwitchTiming(_Timing):
    """Durations of an optical switch.

    :ivar command: from a command or query leaving the controller until the device acts on it.
    :ivar switching: movement of the switching elements, until the device acknowledges.
    :ivar settle: from the acknowledgement until the light is steady at the output: an
        acknowledgement is not a measurement of light.
    :ivar serial: circuits are made one after the other, ``switching`` each (a robot has one
        gripper); otherwise all elements move together.
    """

    command: Distribution = _lognormal(1.0e-3, 0.2)
    switching: Distribution = _lognormal(22e-3, 0.12)
    settle: Distribution = _lognormal(1.5e-3, 0.4)
    serial: bool = False


SwitchClass = Literal["piezo", "mems", "mems-small", "mzi", "thermo-optic", "robotic", "ideal"]

SWITCH_CLASSES: Mapping[str, SwitchTiming] = {
    # Piezo beam steering (Polatis 6000/7000): 20-25 ms typical, 50 ms at most.
    "piezo": SwitchTiming(),
    # 3D-MEMS matrices: 10-25 ms of mirror movement, closed-loop settling, and a control
    # protocol (TL1, REST) that brings command and verification to 30-100 ms.
    "mems": SwitchTiming(
        command=_lognormal(8e-3, 0.4),
        switching=_lognormal(16e-3, 0.25),
        settle=_lognormal(6e-3, 0.5),
    ),
    # Small 1xN MEMS and magneto-optic switches: 1-5 ms.
    "mems-small": SwitchTiming(switching=_lognormal(2.5e-3, 0.3), settle=_lognormal(0.3e-3, 0.3)),
    # Electro-optic Mach-Zehnder: microseconds and below; the control path dominates.
    "mzi": SwitchTiming(
        command=_lognormal(0.4e-3, 0.2), switching=_uniform(2e-6, 10e-6), settle=_constant(1e-6)
    ),
    # Thermo-optic Mach-Zehnder meshes: 10-100 us of heating; device API in front.
    "thermo-optic": SwitchTiming(
        command=_lognormal(2e-3, 0.3), switching=_uniform(20e-6, 100e-6), settle=_constant(20e-6)
    ),
    # Robotic patch panels: half a minute to minutes a fibre, one after the other.
    "robotic": SwitchTiming(
        command=_lognormal(50e-3, 0.3),
        switching=_lognormal(60.0, 0.25),
        settle=_lognormal(0.2, 0.3),
        serial=True,
    ),
    # No delay at all: for measuring our own overhead.
    "ideal": SwitchTiming(command=_constant(0), switching=_constant(0), settle=_constant(0)),
}


# --- hosts ---------------------------------------------------------------------------------


class HostTiming(_Timing):
    """Durations of a host.

    :ivar command: round trip of the control connection (SSH in a management network).
    :ivar line: one way, for a line of output or input of a running process.
    :ivar start: from the command's arrival until a started program runs (fork, exec, loader;
        what a program does afterwards is its own model's business).
    :ivar boot: from power-on until the host answers and its interfaces transmit.
    :ivar link_up: from steady light at a receiver until the interface reports a carrier:
        lock of the clock recovery, PCS block lock, and the driver's debounce.
    """

    command: Distribution = _lognormal(1.2e-3, 0.25)
    line: Distribution = _lognormal(0.15e-3, 0.3)
    start: Distribution = _lognormal(12e-3, 0.25)
    boot: Distribution = _lognormal(4.0, 0.1)
    link_up: Distribution = _lognormal(18e-3, 0.25)


HostClass = Literal["vm", "workstation", "gpu-server", "ideal"]

HOST_CLASSES: Mapping[str, HostTiming] = {
    # Default, so that a run in real time on a mock rack can be watched: a slim virtual machine.
    "vm": HostTiming(),
    # A workstation with little firmware in its way.
    "workstation": HostTiming(boot=_lognormal(35.0, 0.15)),
    # Rack servers with GPUs train their memory and enumerate their cards for minutes.
    "gpu-server": HostTiming(boot=_lognormal(210.0, 0.15), start=_lognormal(30e-3, 0.3)),
    "ideal": HostTiming(
        command=_constant(0), line=_constant(0), start=_constant(0), boot=_constant(0),
        link_up=_constant(0),
    ),
}  # fmt: skip


# --- power ---------------------------------------------------------------------------------


class PowerTiming(_Timing):
    """Durations of a power controller.

    :ivar command: from a command or query leaving the controller until it is acknowledged.
    :ivar relay: from the acknowledgement until the relay has moved and the read-back tells so.
    """

    command: Distribution = _lognormal(15e-3, 0.3)
    relay: Distribution = _lognormal(60e-3, 0.3)


PowerClass = Literal["pdu", "bmc", "ideal"]

POWER_CLASSES: Mapping[str, PowerTiming] = {
    # Switched rack PDU over SNMP: slow agent, mechanical relay.
    "pdu": PowerTiming(),
    # Redfish: TLS and a small processor; the reset itself is asynchronous.
    "bmc": PowerTiming(command=_lognormal(0.12, 0.3), relay=_lognormal(0.6, 0.25)),
    "ideal": PowerTiming(command=_constant(0), relay=_constant(0)),
}


def with_class(data: Any, classes: Mapping[str, BaseModel], default: str) -> Any:
    """Fill the ``timing`` of a device's section from its ``class``; what is given stays."""
    if not isinstance(data, Mapping):
        return data
    preset = classes.get(str(data.get("class", data.get("device_class", default))))
    given = data.get("timing", {})
    if preset is None or not isinstance(given, Mapping):
        return data  # pydantic says what is wrong
    base = {name: getattr(preset, name) for name in type(preset).model_fields}
    return {**data, "timing": {**base, **given}}
