"""Exports of a run to the formats of other tools; each is found by its entry point."""

from testbed.store.exports.exporter import Exporter, export_run, exporters

__all__ = ["Exporter", "export_run", "exporters"]
