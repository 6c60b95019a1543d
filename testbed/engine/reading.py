"""Reads the state of a whole rack, for ``testbed status``; a device that fails is told so."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from testbed.engine.session import RackSession
from testbed.errors import TestbedError
from testbed.hal.capabilities import Host, NicHost, PowerController
from testbed.hal.together import settle
from testbed.hal.types import OutletState
from testbed.hal.wiring import OutletRef

OFF = "off: no feed has power"


async def read_rack(session: RackSession) -> dict[str, Any]:
    """Links, outlets and hosts; devices are read in parallel.

    A device that fails costs nobody else their reading: its error is a text in its place, and in
    ``errors`` by what could not be read. A host without power is not waited for.
    """
    rack = session.rack
    links, link_errors = await settle({"links": session.fabric.links})
    power = {n: session.device(n, PowerController).outlets for n in rack.of_kind("power")}
    outlets, power_errors = await settle(power)
    off = _without_power(session, outlets)
    hosts, host_errors = await settle(
        {name: partial(_host, session, name) for name in rack.of_kind("host") if name not in off}
    )
    errors: dict[str, TestbedError] = {**link_errors, **power_errors, **host_errors}
    texts = {
        **hosts,
        **dict.fromkeys(off, OFF),
        **{name: error.message for name, error in host_errors.items()},
    }
    return {
        "links": sorted(map(str, links.get("links", ()))),
        "outlets": {
            **{f"{c}.{o}": str(s) for c, found in outlets.items() for o, s in found.items()},
            **{name: error.message for name, error in power_errors.items()},
        },
        "hosts": {name: texts[name] for name in rack.of_kind("host")},
        "errors": {name: error.message for name, error in errors.items()},
    }


def _without_power(
    session: RackSession, outlets: Mapping[str, Mapping[str, OutletState]]
) -> frozenset[str]:
    """Hosts all of whose feeds read back off."""

    def is_off(feed: OutletRef) -> bool:
        return outlets.get(feed.controller, {}).get(feed.outlet) is OutletState.OFF

    wiring = session.rack.wiring
    feeds = {name: wiring.feeds_of(name) for name in session.rack.of_kind("host")}
    return frozenset(name for name, found in feeds.items() if found and all(map(is_off, found)))


async def _host(session: RackSession, name: str) -> str:
    health = await session.device(name, Host).health()
    text = f"up {health.uptime_s:.0f} s"
    if "nic-host" in session.rack.devices[name].driver.capabilities:
        states = await session.device(name, NicHost).interfaces()
        text += "".join(f", {n} {s.carrier}" for n, s in states.items())
    return text
