"""Compares the cache with the presses of kvpress on the same weights and samples."""
