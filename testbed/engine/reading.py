"""Reads the state of a whole rack, for ``testbed status``; a device that fails is told so."""

from __future__ import annotations

from functools import partial
from typing import Any

from testbed.engine.session import RackSession
from testbed.hal.capabilities import Host, NicHost, PowerController
from testbed.hal.together import settle


async def read_rack(session: RackSession) -> dict[str, Any]:
    """Links, outlets and hosts, read in parallel; errors as texts in their places."""
    rack = session.rack
    links = await session.fabric.links()
    power = {n: session.device(n, PowerController).outlets for n in rack.of_kind("power")}
    outlets, power_errors = await settle(power)
    hosts, host_errors = await settle(
        {name: partial(_host, session, name) for name in rack.of_kind("host")}
    )
    return {
        "links": sorted(map(str, links)),
        "outlets": {
            **{f"{c}.{o}": str(s) for c, found in outlets.items() for o, s in found.items()},
            **{name: error.message for name, error in power_errors.items()},
        },
        "hosts": {**hosts, **{name: error.message for name, error in host_errors.items()}},
    }


async def _host(session: RackSession, name: str) -> str:
    health = await session.device(name, Host).health()
    text = f"up {health.uptime_s:.0f} s"
    if "nic-host" in session.rack.devices[name].driver.capabilities:
        states = await session.device(name, NicHost).interfaces()
        text += "".join(f", {n} {s.carrier}" for n, s in states.items())
    return text
