"""Puts a model into a package: downloads, checks and lists its files."""
