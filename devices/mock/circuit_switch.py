"""Twin of a circuit switch: any port to any port, without blocking."""

from __future__ import annotations

from devices.mock.switch import MockSwitch
from devices.optical.circuit_switch import CircuitSwitchOptions
from testbed.hal.registry import DriverContext
from testbed.hal.types import Circuit, Identity, Port


class MockCircuitSwitch(MockSwitch):
    """A matrix whose circuits lose the same, apart from the connectors of their two ports."""

    def __init__(self, name: str, options: CircuitSwitchOptions, context: DriverContext) -> None:
        super().__init__(name, options, context)
        self.options = options
        rng = context.rng(f"{name}/connectors")
        self._connector_db: dict[Port, float] = {
            port: rng.uniform(0.0, options.connector_loss) for port in options.port_map
        }

    def identity(self) -> Identity:
        return Identity(
            "testbed", f"mock {self.options.device_class} {self.options.ports}", self.name
        )

    def loss_db(self, circuit: Circuit) -> float:
        connectors = self._connector_db
        return (
            self.options.insertion_loss + connectors[circuit.ingress] + connectors[circuit.egress]
        )
