"""Metal kernels: their sources, and what can be told about them without a Mac.

`constants` and `sources` also run while the compiled module is being installed,
so they and what they import need nothing but the standard library.
"""
