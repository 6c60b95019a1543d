"""Hardware abstraction: capability protocols, values, driver registry, adapters for drivers."""
