"""Baseboard management controller: switches the chassis of the one host that it sits in."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from devices.mock.timing import POWER_CLASSES, PowerClass, PowerTiming, with_class
from testbed.hal.capabilities import Device
from testbed.hal.registry import DriverContext, DriverSpec
from testbed.hal.types import Backend

OUTLET: Literal["system"] = "system"
"""The one outlet of every BMC."""


class BmcOptions(BaseModel):
    """Section of a BMC in the rack file.

    :ivar host: the host whose chassis it switches, and whose feeds keep it alive.
    :ivar device_class: kind of controller, which gives the timing; ``class`` in the file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    host: str
    device_class: PowerClass = Field("bmc", alias="class")
    outlets: tuple[Literal["system"]] = (OUTLET,)
    timing: PowerTiming = POWER_CLASSES["bmc"]

    @model_validator(mode="before")
    @classmethod
    def _class(cls, data: Any) -> Any:
        return with_class(data, POWER_CLASSES, "bmc")


def _mock(name: str, options: BmcOptions, context: DriverContext) -> Device:
    from devices.mock.power import MockBmc

    return MockBmc(name, options, context)


DRIVER = DriverSpec(
    name="bmc",
    kind="power",
    summary="Baseboard management controller: chassis power of one host",
    options=BmcOptions,
    capabilities=frozenset({"power-controller", "fault-injectable"}),
    backends={Backend.MOCK: _mock},
)
