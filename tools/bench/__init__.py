"""Measures the project's goals for speed, and writes docs/performance.md."""
