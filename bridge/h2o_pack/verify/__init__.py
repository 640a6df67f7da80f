"""Compares a package on disk with its records."""
