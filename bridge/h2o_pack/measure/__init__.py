"""Measures speed (bench), the quality lost to eviction (evaluation), attention (profiling)."""
