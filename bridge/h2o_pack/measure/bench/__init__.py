"""Measures the caches side by side, in one process: `python -m h2o_py bench`.

Every figure comes from interleaved runs: each repetition gives every contender one burst
of steps, in an order that changes, so that whatever else the machine does hits all alike.
Figures are medians with quartiles, and ratios are taken within a repetition.

Importing this package imports neither mlx nor mlx_lm; `bench.run.run` does.
"""
