"""Types of task arguments whose values must be names of the rack.

The loader validates arguments with the rack's names as pydantic context, so that a misspelt host
is reported at its place before anything runs. Without that context (in a test) the types take
any name.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo

from testbed.hal.wiring import Endpoint
from testbed.rack.rack import Rack
from testbed.source.suggest import did_you_mean


@dataclass(frozen=True)
class RackNames:
    """What may be named in arguments: hosts, devices, and interfaces as ``host.interface``."""

    hosts: frozenset[str]
    devices: frozenset[str]
    interfaces: frozenset[str]

    @classmethod
    def of(cls, rack: Rack) -> RackNames:
        interfaces = {str(e) for e in rack.wiring.endpoints}
        for name in rack.of_kind("host"):
            declared = getattr(rack.devices[name].options, "interfaces", ())
            interfaces |= {f"{name}.{interface}" for interface in declared}
        return cls(frozenset(rack.of_kind("host")), frozenset(rack.devices), frozenset(interfaces))


def _known(kind: str, name: str, known: Collection[str]) -> str:
    if name not in known:
        raise ValueError(f"the rack has no {kind} {name!r}; {did_you_mean(name, known)}")
    return name


def _host(name: str, info: ValidationInfo) -> str:
    return _known("host", name, info.context.hosts) if info.context else name


def _device(name: str, info: ValidationInfo) -> str:
    return _known("device", name, info.context.devices) if info.context else name


def _interface(text: str, info: ValidationInfo) -> str:
    name = str(Endpoint.parse(text))
    return _known("interface", name, info.context.interfaces) if info.context else name


HostName = Annotated[str, AfterValidator(_host)]
"""A host of the rack."""

DeviceName = Annotated[str, AfterValidator(_device)]
"""A device of the rack."""

InterfaceName = Annotated[str, AfterValidator(_interface)]
"""A data interface of a host of the rack, as ``host0.p1``."""
