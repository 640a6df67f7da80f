"""Measures the project's goals for speed, and writes docs/results/speed.md."""
