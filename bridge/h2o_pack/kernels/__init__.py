"""Metal kernels: their sources, and what can be told about them without a Mac."""
