"""Trials as Apache Parquet, with units and the origin of the values in the metadata."""

from __future__ import annotations

from testbed.store.exports.exporter import Exporter
from testbed.store.trials import write_table

EXPORTER = Exporter("parquet", ".parquet", "Trials as a Parquet table, with units.", write_table)
