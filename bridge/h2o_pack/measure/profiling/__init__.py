"""Profiles a model: its attention by layer, and budgets that follow from it.

`profiler.run(Options)` lets a model of mlx_lm read a text with mlx_lm's caches and returns a
`profile_report.Profile`; `rules` makes budgets that differ from layer to layer from a profile.
"""
