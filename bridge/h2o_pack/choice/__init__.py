"""Chooses the open settings of a package: the model, the rows of its cache and their bits."""
