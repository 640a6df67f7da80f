"""Measures what recall costs, for docs/results/speed.md."""
