"""Versions that the compiled module is built for."""

MLX_VERSION = "0.31.1"
