"""Twins without a rack file, for tests: devices by name, opened together, in one world.

::

    async def scenario():
        devices = {"ocs": ("circuit-switch", {"ports": 16}), "host0": ("gpu-host", {})}
        async with mock_rack(devices, wiring) as rack:
            await rack["host0"].inject(FaultSpec("gpu-xid"))
            rack["ocs"].hook("send", lambda operation: ...)

    testbed.timing.clock.run(scenario, virtual=True, seed=7)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from testbed.hal.registry import DriverContext, driver
from testbed.hal.types import Backend
from testbed.hal.wiring import Wiring


@asynccontextmanager
async def mock_rack(
    devices: Mapping[str, tuple[str, Mapping[str, Any]]],
    wiring: Wiring,
    *,
    seed: int = 0,
    virtual: bool = True,
    state_path: str | None = None,
    name: str = "test",
) -> AsyncIterator[dict[str, Any]]:
    """Make twins, open them, and close them at the end.

    :param devices: per name, the driver and its section of a rack file.
    :param state_path: file that keeps the state of the world, in real time only.
    """
    context = DriverContext(name, wiring, seed=seed, virtual=virtual, state_path=state_path)
    made: dict[str, Any] = {}
    for device, (driver_name, options) in devices.items():
        spec = driver(driver_name)
        checked = spec.options.model_validate(dict(options))
        made[device] = spec.backends[Backend.MOCK](device, checked, context)
    try:
        for twin in made.values():
            await twin.open()
        yield made
    finally:
        with trio.CancelScope(shield=True):
            for twin in made.values():
                await twin.close()
