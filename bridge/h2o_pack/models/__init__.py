"""Finds models and describes them: shapes, caches, weights, files.

No code of this folder reads weights: configurations and safetensors headers are enough.
"""
