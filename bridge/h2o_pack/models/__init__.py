"""Finds models and says what they are: shapes, caches, weights, files.

Nothing here reads a weight: configurations and safetensors headers tell all of it.
"""
