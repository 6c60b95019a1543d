"""Rack file, wiring, fabric (links <-> circuits), leases and dirty marks."""
