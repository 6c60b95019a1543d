"""Circuit switch: any ingress port to any egress port, as beam-steering and MEMS matrices do."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from devices.mock.timing import SWITCH_CLASSES, SwitchClass, SwitchTiming, with_class
from testbed.hal.capabilities import Device
from testbed.hal.registry import DriverContext, DriverSpec
from testbed.hal.types import Backend, Port, PortDirection, PortInfo
from testbed.timing.quantity import Decibels, Seconds


class CircuitSwitchOptions(BaseModel):
    """Section of a circuit switch in the rack file.

    :ivar device_class: technology, which gives the timing; ``class`` in the file.
    :ivar ports: number of ports, named ``first_port`` and up.
    :ivar ingress: light enters the first so many ports only, and leaves at the others only;
        by default every port carries light both ways (its circuits are still one-way).
    :ivar insertion_loss: of a circuit without its connectors, in dB.
    :ivar connector_loss: spread of the loss of each port's connector, from 0 to this, in dB.
    :ivar power_meters: whether the switch measures light at its ports.
    :ivar light_poll: pause between two looks at the light.
    :ivar light_deadline: time for the light to come after an acknowledgement.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    device_class: SwitchClass = Field("piezo", alias="class")
    ports: Annotated[int, Field(ge=2, le=4096)] = 320
    ingress: Annotated[int, Field(ge=1)] | None = None
    first_port: Annotated[int, Field(ge=0)] = 1
    insertion_loss: Decibels = 1.5
    connector_loss: Decibels = 0.4
    power_meters: bool = True
    light_poll: Seconds = 0.002
    light_deadline: Seconds = 1.0
    timing: SwitchTiming = SwitchTiming()

    @model_validator(mode="before")
    @classmethod
    def _class(cls, data: Any) -> Any:
        return with_class(data, SWITCH_CLASSES, "piezo")

    @model_validator(mode="after")
    def _some_egress(self) -> CircuitSwitchOptions:
        if self.ingress is not None and self.ingress >= self.ports:
            raise ValueError(f"ingress must be below ports ({self.ports}): light must leave too")
        return self

    @cached_property
    def port_map(self) -> dict[Port, PortInfo]:
        """All ports with their direction, in order."""
        found = {}
        for index in range(self.ports):
            port = str(self.first_port + index)
            if self.ingress is None:
                direction = PortDirection.BOTH
            else:
                direction = PortDirection.INGRESS if index < self.ingress else PortDirection.EGRESS
            found[port] = PortInfo(port, direction)
        return found


def _mock(name: str, options: CircuitSwitchOptions, context: DriverContext) -> Device:
    from devices.mock.circuit_switch import MockCircuitSwitch

    return MockCircuitSwitch(name, options, context)


DRIVER = DriverSpec(
    name="circuit-switch",
    kind="switch",
    summary="Circuit switch with optical power meters (piezo, MEMS, MZI, robotic)",
    options=CircuitSwitchOptions,
    capabilities=frozenset({"optical-switch", "optical-power", "fault-injectable"}),
    backends={Backend.MOCK: _mock},
)
