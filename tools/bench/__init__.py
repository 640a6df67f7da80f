"""The project's own goals for speed, measured: docs/performance.md."""
