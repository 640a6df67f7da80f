"""Finds errors, without a Mac, in the Metal kernels and the C++ that dispatches them."""
