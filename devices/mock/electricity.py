"""Who has power: outlets feed hosts, a chassis switch sits behind the feeds of its host."""

from __future__ import annotations

from collections.abc import Callable

from testbed.hal.wiring import OutletRef, Wiring


class Electricity:
    """All power of one rack. An outlet that nobody has switched is on.

    :param changed: called with each host whose power may have changed.
    """

    def __init__(self, wiring: Wiring, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._wiring = wiring
        self._on: dict[OutletRef, bool] = {}
        self._chassis: dict[str, OutletRef] = {}
        self._failed: set[str] = set()

    def add_chassis_switch(self, host: str, outlet: OutletRef) -> None:
        """This outlet switches the chassis of the host, behind its feeds."""
        self._chassis[host] = outlet

    def is_on(self, outlet: OutletRef) -> bool:
        return self._on.get(outlet, True)

    def set(self, outlet: OutletRef, *, on: bool) -> None:
        """Move the relay of an outlet."""
        if self.is_on(outlet) is on:
            return
        self._on[outlet] = on
        hosts = dict.fromkeys(self._wiring.hosts_fed_by(outlet))
        hosts.update((host, None) for host, chassis in self._chassis.items() if chassis == outlet)
        for host in hosts:
            self._changed(host)

    def fail_supply(self, host: str, *, failed: bool) -> None:
        """Break or mend the power supply inside of a host, whatever its outlets say."""
        (self._failed.add if failed else self._failed.discard)(host)
        self._changed(host)

    def feeds(self, host: str) -> tuple[OutletRef, ...]:
        """Outlets that feed a host, without its chassis switch."""
        chassis = self._chassis.get(host)
        return tuple(f for f in self._wiring.feeds_of(host) if f != chassis)

    def standby(self, host: str) -> bool:
        """Whether any feed gives power, so that the BMC lives."""
        feeds = self.feeds(host)
        return host not in self._failed and (not feeds or any(map(self.is_on, feeds)))

    def powered(self, host: str) -> bool:
        """Whether the host itself has power."""
        chassis = self._chassis.get(host)
        return self.standby(host) and (chassis is None or self.is_on(chassis))

    def share(self, outlet: OutletRef) -> dict[str, float]:
        """Hosts that draw from an outlet now, each with its share: feeds that are on share
        the load equally."""
        if not self.is_on(outlet):
            return {}
        shares = {}
        for host in self._wiring.hosts_fed_by(outlet):
            active = [feed for feed in self.feeds(host) if self.is_on(feed)]
            if outlet in active:
                shares[host] = 1.0 / len(active)
        return shares
