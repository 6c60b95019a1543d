"""The detector of lost links: which host is cut off, when carriers go away?

Both ends of a link lose their carrier together, so that a carrier alone never tells which of
two hosts has failed. Asked in this order:

1. a host that does not answer over the management network has failed;
2. a host of which every link is dark, when there is one such host only, is cut off;
3. where switches measure light: a host whose light does not reach the switch is cut off.

What is left is a symptom, and no failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from testbed.errors import DeviceError
from testbed.hal.apply import DARK_BELOW_DBM
from testbed.hal.capabilities import Host, NicHost, OpticalPowerMonitor
from testbed.hal.types import Carrier
from testbed.hal.wiring import Endpoint
from testbed.playbook.task import TaskContext
from testbed.rack.links import Link

ANSWER_WITHIN_S = 0.1
"""Time for a host to answer when a link to it is dark already: a management network is fast."""


async def answers(context: TaskContext, host: str, within_s: float) -> bool:
    """Whether a host answers over the management network within that time."""
    with trio.move_on_after(within_s):
        try:
            await context.device(host, Host).health()
        except DeviceError:
            return False
        return True
    return False


class LinkWatch:
    """Watches the carriers of a slice.

    :param hosts: gives the members of the slice at any moment.
    :param symptom: told of each lost carrier: host, and what was seen.
    :param failure: told of each host found failed: host, and why.
    """

    def __init__(
        self,
        context: TaskContext,
        hosts: Callable[[], Sequence[str]],
        symptom: Callable[[str, str], None],
        failure: Callable[[str, str], None],
    ) -> None:
        self._context = context
        self._hosts = hosts
        self._symptom = symptom
        self._failure = failure
        self._links: list[Link] = []
        self._dark: set[Link] = set()  # a link is lost with the carrier of either end

    async def run(self) -> None:
        """Watch the links that exist now, until each of them was lost or all is cancelled."""
        members = set(self._hosts())
        self._links = sorted(
            k for k in await self._context.fabric.links() if members & {k.a.host, k.b.host}
        )
        capable = set(self._context.rack.having("nic-host"))
        async with trio.open_nursery() as nursery:
            for link in self._links:
                for near, far in ((link.a, link.b), (link.b, link.a)):
                    if near.host in capable:
                        nursery.start_soon(self._watch, link, near, far)

    async def _watch(self, link: Link, near: Endpoint, far: Endpoint) -> None:
        nic = self._context.device(near.host, NicHost)
        while True:
            try:
                await nic.wait_carrier(near.interface, Carrier.DOWN)
                break
            except DeviceError as error:
                if error.kind != "device-timeout":
                    return
                # No news within the deadline of one operation: ask again.
        if not {near.host, far.host} <= set(self._hosts()):
            return  # a recovery has taken this link down
        self._dark.add(link)
        self._symptom(near.host, f"{near} lost its carrier")
        if not await answers(self._context, far.host, ANSWER_WITHIN_S):
            self._failure(far.host, f"{near} is dark, and {far.host} does not answer")
            return
        host = self._cut_off() or await self._unlit(link)
        if host is not None:
            self._failure(host, f"{link} is dark, and {host} is cut off from the fabric")

    def _cut_off(self) -> str | None:
        lit = {end.host for link in self._links if link not in self._dark for end in link.ends}
        lost = {end.host for link in self._dark for end in link.ends} - lit
        return lost.pop() if len(lost) == 1 else None

    async def _unlit(self, link: Link) -> str | None:
        """The one end of a link whose light does not reach its switch."""
        wiring = self._context.rack.wiring
        unlit = []
        for end in link.ends:
            entry = wiring.tx(end)
            if entry.switch not in self._context.rack.having("optical-power"):
                return None
            monitor = self._context.device(entry.switch, OpticalPowerMonitor)
            try:
                power = await monitor.port_power_dbm([entry.port])
            except DeviceError:
                return None
            if power[entry.port] < DARK_BELOW_DBM:
                unlit.append(end.host)
        return unlit[0] if len(unlit) == 1 else None
