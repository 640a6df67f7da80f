"""Profiles a model: its attention by layer, and budgets that follow from it.

`profiler.load_and_profile(Options)` lets a model of mlx_lm read a text with mlx_lm's caches and
returns a `profile_report.Profile`; `rules` makes budgets from it, which differ by layer.
"""
