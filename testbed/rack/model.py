"""The rack file as written: pydantic models of its sections.

References between sections are checked by :mod:`testbed.rack.loader`, which also reads each
device's own options with the model of its driver.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from testbed.hal.types import Backend, OutletState
from testbed.timing.quantity import Decibels, Seconds

SCHEMA = "testbed/rack/v1"
NAME = r"^[A-Za-z][A-Za-z0-9_-]*$"
Name = Annotated[str, Field(pattern=NAME)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class DeviceSection(BaseModel):
    """A device; keys other than these are options of its driver."""

    model_config = ConfigDict(extra="allow", frozen=True)

    driver: str
    backend: Backend = Backend.REAL


class FibreSection(_Section):
    """One strand, one way: ``from`` a host's interface ``to`` a switch port, or back."""

    source: str = Field(alias="from")
    sink: str = Field(alias="to")
    loss: Decibels = 0.5


class DuplexSection(_Section):
    """Both strands of an interface at once: its transmitter ends at port ``tx`` of the switch,
    and port ``rx`` leads to its receiver."""

    interface: str
    switch: str
    tx: str | int
    rx: str | int
    loss: Decibels = 0.5


class FeedSection(_Section):
    """An outlet that feeds a host."""

    outlet: str
    feeds: str


class WiringSection(_Section):
    """Fibres and power feeds. ``interfaces`` writes both strands of an interface in one line."""

    fibres: tuple[FibreSection, ...] = ()
    interfaces: tuple[DuplexSection, ...] = ()
    outlets: tuple[FeedSection, ...] = ()


class SafeStateSection(_Section):
    """What the rack must look like when nobody uses it."""

    circuits: dict[str, Literal["none", "keep"] | tuple[str, ...]] = Field(default_factory=dict)
    outlets: dict[str, OutletState] = Field(default_factory=dict)
    processes: Literal["kill", "keep"] = "kill"


class RackFile(_Section):
    """A rack file.

    :ivar deadlines: per operation (``apply``, ``run``, ``open``, ...), replaces the default.
    """

    version: Literal["testbed/rack/v1"] = Field(alias="schema")
    name: Name
    description: str = ""
    devices: Annotated[dict[Name, dict[str, Any]], Field(min_length=1)]
    wiring: WiringSection = WiringSection()
    safe_state: SafeStateSection = SafeStateSection()
    deadlines: dict[str, Seconds] = Field(default_factory=dict)
