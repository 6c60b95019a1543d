"""Switched, metered power distribution unit."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from devices.mock.timing import POWER_CLASSES, PowerClass, PowerTiming, with_class
from testbed.hal.capabilities import Device
from testbed.hal.registry import DriverContext, DriverSpec
from testbed.hal.types import Backend


class PduOptions(BaseModel):
    """Section of a PDU in the rack file.

    :ivar outlets: names of its outlets, in order; or their number (``1``, ``2``, …).
    :ivar device_class: kind of controller, which gives the timing; ``class`` in the file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    device_class: PowerClass = Field("pdu", alias="class")
    outlets: Annotated[
        tuple[str, ...],
        Field(min_length=1),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "array", "items": {"type": "string"}, "minItems": 1},
                    {"type": "integer", "minimum": 1},
                ]
            }
        ),
    ] = tuple(str(n) for n in range(1, 9))
    timing: PowerTiming = PowerTiming()

    @model_validator(mode="before")
    @classmethod
    def _class(cls, data: Any) -> Any:
        return with_class(data, POWER_CLASSES, "pdu")

    @field_validator("outlets", mode="before")
    @classmethod
    def _count(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return tuple(str(n) for n in range(1, value + 1))
        return value

    @field_validator("outlets")
    @classmethod
    def _unique(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            raise ValueError("an outlet is named twice")
        return value


def _mock(name: str, options: PduOptions, context: DriverContext) -> Device:
    from devices.mock.power import MockPdu

    return MockPdu(name, options, context)


DRIVER = DriverSpec(
    name="pdu",
    kind="power",
    summary="Switched and metered power distribution unit",
    options=PduOptions,
    capabilities=frozenset({"power-controller", "power-meter", "fault-injectable"}),
    backends={Backend.MOCK: _mock},
)
