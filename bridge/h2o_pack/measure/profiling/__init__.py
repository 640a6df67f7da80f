"""Profiles a model: its attention, the time of a decode step, and budgets by layer.

`run.run(Options)` lets a model of mlx_lm read a text with mlx_lm's caches and returns a
`report.Profile`; `rules` makes budgets that differ from layer to layer from a profile.
"""
