"""Upstream's sources in a package: copied, and edited by rules in data files."""
