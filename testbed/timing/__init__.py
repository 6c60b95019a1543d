"""Clocks, marks, spans, quantities, distributions, measures and statistics."""
