"""Upstream's sources in a package: copied, and edited by rules that are data."""
