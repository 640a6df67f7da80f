"""How much memory a model takes on a device, from its shapes and how MLX works.

`estimate.plan_memory` adds up `terms`; `kept` has the bytes of everything that stays, `queue`
what MLX holds of operations that are queued, `chunk` those of a chunk and its worst moment.
"""
