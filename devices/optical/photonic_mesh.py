"""Programmable photonic mesh: hexagonal cells of 2x2 gates, through which light is routed."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from devices.mock.timing import SWITCH_CLASSES, SwitchClass, SwitchTiming, with_class
from testbed.hal.capabilities import Device
from testbed.hal.registry import DriverContext, DriverSpec
from testbed.hal.types import Backend, Port, PortDirection, PortInfo
from testbed.timing.quantity import Decibels, Seconds

PORTS = 38
"""The published bench uses the ports 0 to 37."""


class PhotonicMeshOptions(BaseModel):
    """Section of a photonic mesh in the rack file.

    :ivar device_class: technology, which gives the timing; ``class`` in the file.
    :ivar cells: programmable cells; the published device has 72.
    :ivar coupling_loss: fibre to chip and back, of a whole path, in dB.
    :ivar cell_loss: for each cell that a path crosses, in dB.
    :ivar light_deadline: time for the light to come after an acknowledgement.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    device_class: SwitchClass = Field("thermo-optic", alias="class")
    cells: Literal[72] = 72
    coupling_loss: Decibels = 3.0
    cell_loss: Decibels = 0.3
    power_meters: bool = True
    light_poll: Seconds = 0.002
    light_deadline: Annotated[Seconds, Field(gt=0)] = 1.0
    timing: SwitchTiming = SwitchTiming()

    @model_validator(mode="before")
    @classmethod
    def _class(cls, data: Any) -> Any:
        return with_class(data, SWITCH_CLASSES, "thermo-optic")

    @cached_property
    def port_map(self) -> dict[Port, PortInfo]:
        """All ports; light passes each of them either way."""
        return {str(n): PortInfo(str(n), PortDirection.BOTH) for n in range(PORTS)}


def _mock(name: str, options: PhotonicMeshOptions, context: DriverContext) -> Device:
    from devices.mock.photonic_mesh import MockPhotonicMesh

    return MockPhotonicMesh(name, options, context)


DRIVER = DriverSpec(
    name="photonic-mesh",
    kind="switch",
    summary="Programmable photonic mesh of 72 cells; circuits are routed over it",
    options=PhotonicMeshOptions,
    capabilities=frozenset({"optical-switch", "optical-power", "mesh-switch", "fault-injectable"}),
    backends={Backend.MOCK: _mock},
)
