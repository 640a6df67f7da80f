"""Finds models and describes them: shapes, caches, weights, files.

No code here reads weights: configurations and safetensors headers are enough.
"""
