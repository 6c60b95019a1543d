"""Twins of power controllers: a metered PDU, and the BMC of one host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from devices.mock.device import MockDevice
from devices.mock.state import Section
from devices.mock.timing import PowerTiming
from devices.power.bmc import OUTLET, BmcOptions
from devices.power.pdu import PduOptions
from testbed.errors import DeviceRefused
from testbed.hal.registry import DriverContext
from testbed.hal.types import FaultSpec, Identity, OutletState
from testbed.hal.wiring import OutletRef

EVENTS: Mapping[str, str] = MappingProxyType(
    {
        "power-off": "an outlet goes off by itself; `target`: the outlet (all of them)",
        "power-on": "an outlet goes on by itself; `target`: the outlet (all of them)",
        "relay-stuck": "an outlet keeps its state whatever is commanded, and reads back so; "
        "`target`: the outlet (all of them)",
    }
)


class MockOutlets(MockDevice):
    """Switched outlets. ``switch`` is acknowledged first, and the relay moves after that."""

    KINDS = EVENTS

    def __init__(
        self, name: str, outlets: tuple[str, ...], timing: PowerTiming, context: DriverContext
    ) -> None:
        super().__init__(name, context, timing.command)
        self._outlets = {outlet: OutletRef(name, outlet) for outlet in outlets}
        self._relay = timing.relay
        self._stuck: set[str] = set()
        self._pretended: dict[str, OutletState] = {}
        self._orders: dict[str, int] = {}
        self._ordered: dict[str, OutletState] = {}
        self.world.add_part(name, self)

    # --- PowerController -------------------------------------------------------------------

    async def outlets(self) -> Mapping[str, OutletState]:
        return await self.exchange("outlets", self._told)

    async def switch(self, outlet: str, state: OutletState) -> None:
        if outlet not in self._outlets:
            raise DeviceRefused(
                f"power controller {self._name} has no outlet {outlet}",
                device=self._name,
                operation="switch",
                remedy=f"its outlets are {', '.join(self._outlets)}",
            )
        await self.exchange(
            "switch", lambda: self._order(outlet, state), lie=lambda: self._pretend(outlet, state)
        )

    def _told(self) -> Mapping[str, OutletState]:
        return {**{o: self._state(o) for o in self._outlets}, **self._pretended}

    def _state(self, outlet: str) -> OutletState:
        on = self.world.electricity.is_on(self._outlets[outlet])
        return OutletState.ON if on else OutletState.OFF

    def _order(self, outlet: str, state: OutletState) -> None:
        # A relay that is on its way is overtaken by the order that comes after.
        order = self._orders[outlet] = self._orders.get(outlet, 0) + 1
        self._pretended.pop(outlet, None)

        def move() -> None:
            if self._orders[outlet] == order and outlet not in self._stuck:
                self._set(outlet, state)

        if outlet not in self._stuck:
            # A controller that dies now does not keep the relay from moving.
            self._ordered[outlet] = state
            self.world.changed(self._name)
        self.world.timers.after(self._relay.draw_s(self.rng), move)

    def _pretend(self, outlet: str, state: OutletState) -> None:
        self._pretended[outlet] = state
        self.repair_by("lie", self._pretended.clear)

    def _set(self, outlet: str, state: OutletState) -> None:
        self._ordered.pop(outlet, None)
        self.world.electricity.set(self._outlets[outlet], on=state is OutletState.ON)
        self.world.changed(self._name)

    # --- state file ------------------------------------------------------------------------

    def snapshot(self) -> Section:
        """State of the relays, as it will be when those on their way have moved."""
        return {o: str(self._ordered.get(o, self._state(o))) for o in self._outlets}

    def restore(self, section: Section) -> None:
        """Take over the state of the relays."""
        for outlet, state in section.items():
            if outlet in self._outlets:
                on = OutletState(state) is OutletState.ON
                self.world.electricity.set(self._outlets[outlet], on=on)

    # --- faults ----------------------------------------------------------------------------

    def event(self, fault: FaultSpec) -> Callable[[], None]:
        if fault.target is not None and fault.target not in self._outlets:
            raise self.no_fault(
                f"there is no outlet {fault.target}",
                remedy=f"its outlets are {', '.join(self._outlets)}",
            )
        hit = tuple(self._outlets) if fault.target is None else (fault.target,)
        match fault.kind:
            case "relay-stuck":
                return lambda: self._stick(hit)
            case _:
                on = fault.kind == "power-on"
                return lambda: self._switch_by_itself(
                    hit, OutletState.ON if on else OutletState.OFF
                )

    def _stick(self, hit: tuple[str, ...]) -> None:
        self._stuck.update(hit)
        self.repair_by(f"stuck {hit}", lambda: self._stuck.difference_update(hit))

    def _switch_by_itself(self, hit: tuple[str, ...], state: OutletState) -> None:
        for outlet in hit:
            before = self._state(outlet)
            self._set(outlet, state)
            if before is not state:
                self.repair_by(f"outlet {outlet}", self._putting_back(outlet, before))

    def _putting_back(self, outlet: str, state: OutletState) -> Callable[[], None]:
        return lambda: self._set(outlet, state)


class MockPdu(MockOutlets):
    """A PDU with a meter at each outlet."""

    def __init__(self, name: str, options: PduOptions, context: DriverContext) -> None:
        super().__init__(name, options.outlets, options.timing, context)
        self.options = options

    def identity(self) -> Identity:
        return Identity("testbed", f"mock PDU {len(self._outlets)}", self.name)

    async def outlet_power_w(self) -> Mapping[str, float]:
        """What the hosts draw through each outlet now; their feeds share the load."""
        return await self.exchange("outlet_power_w", self._measure)

    def _measure(self) -> Mapping[str, float]:
        machines = self.world.machines
        return {
            outlet: round(
                sum(
                    share * machines[host].power_w()
                    for host, share in self.world.electricity.share(ref).items()
                    if host in machines
                ),
                1,
            )
            for outlet, ref in self._outlets.items()
        }


class MockBmc(MockOutlets):
    """A BMC: its one outlet is the chassis of its host; it lives on the standby power of the
    host's feeds, and is silent without them."""

    def __init__(self, name: str, options: BmcOptions, context: DriverContext) -> None:
        super().__init__(name, options.outlets, options.timing, context)
        self.options = options
        self.world.electricity.add_chassis_switch(options.host, OutletRef(name, OUTLET))

    def identity(self) -> Identity:
        return Identity("testbed", "mock BMC", self.name)

    async def reachable(self) -> None:
        """Wait for standby power."""
        await self.world.standby(self.options.host)
