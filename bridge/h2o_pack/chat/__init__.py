"""Talks to a model in Python, with the caches and the rules of a package's session."""
