"""Measuring: speed (bench), what eviction costs (evaluation), what attention does."""
