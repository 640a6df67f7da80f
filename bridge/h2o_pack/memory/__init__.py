"""How much memory a model takes on a device, from its shapes and how MLX works.

`estimate.plan_memory` adds up the terms of the plan of a `PlannedRun`; `terms` defines them.
`cache_bytes` computes the bytes of caches and other arrays that last from step to step, `queue`
models the buffers that MLX allocates for queued operations, and `chunk` finds the moment of a
step when these are largest.
"""
