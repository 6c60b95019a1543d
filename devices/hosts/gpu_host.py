"""Host with GPUs and optical data interfaces, managed over its own network."""

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

from devices.mock.timing import HOST_CLASSES, HostClass, HostTiming, with_class
from testbed.hal.capabilities import Device
from testbed.hal.registry import DriverContext, DriverSpec
from testbed.hal.types import Backend
from testbed.timing.quantity import BitsPerSecond, Decibels, SizeBytes, Watts


class GpuHostOptions(BaseModel):
    """Section of a GPU host in the rack file.

    :ivar device_class: size of machine, which gives the timing; ``class`` in the file.
    :ivar interfaces: names of its data interfaces, in order; or their number (``p0``, ``p1``, …).
    :ivar line_rate: of a data interface, in bits per second.
    :ivar tx_power: optical power of a transmitter, in dBm.
    :ivar rx_sensitivity: least optical power at which a receiver works, in dBm.
    :ivar idle_power: of the host without the work of its GPUs, in watts.
    :ivar gpu_power: of a GPU at work; an idle one takes a tenth of it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    device_class: HostClass = Field("vm", alias="class")
    interfaces: Annotated[
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
    ] = ("p0", "p1")
    gpus: Annotated[int, Field(ge=0, le=64)] = 1
    gpu_model: str = "NVIDIA RTX 6000 Ada"
    gpu_memory: SizeBytes = 48e9
    # 10GBASE-ER, as on the published bench: 10 Gb/s at 1550 nm, 40 km class.
    line_rate: BitsPerSecond = 10e9
    tx_power: Decibels = 0.0
    rx_sensitivity: Decibels = -15.8
    idle_power: Watts = 180.0
    gpu_power: Watts = 300.0
    timing: HostTiming = HostTiming()

    @model_validator(mode="before")
    @classmethod
    def _class(cls, data: Any) -> Any:
        return with_class(data, HOST_CLASSES, "vm")

    @field_validator("interfaces", mode="before")
    @classmethod
    def _count(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return tuple(f"p{n}" for n in range(value))
        return value

    @field_validator("interfaces")
    @classmethod
    def _unique(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            raise ValueError("an interface is named twice")
        return value


def _mock(name: str, options: GpuHostOptions, context: DriverContext) -> Device:
    from devices.mock.gpu_host import MockGpuHost

    return MockGpuHost(name, options, context)


DRIVER = DriverSpec(
    name="gpu-host",
    kind="host",
    summary="Host with GPUs and optical data interfaces",
    options=GpuHostOptions,
    capabilities=frozenset({"host", "gpu-host", "nic-host", "fault-injectable"}),
    backends={Backend.MOCK: _mock},
)
