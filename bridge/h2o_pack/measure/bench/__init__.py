"""Measures the caches side by side, in one process: `h2o-pack bench`.

Every figure comes from interleaved runs: each repetition gives every cache one burst of
steps, in an order that changes, so that whatever else the machine does affects all of them
alike. Figures are medians with quartiles, and ratios are taken within a repetition.

Importing this package imports neither mlx nor mlx_lm; `bench.run` does.
"""
