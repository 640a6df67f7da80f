"""Puts a model into a package: fetched, checked, placed, and listed in a manifest."""
