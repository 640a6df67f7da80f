"""Chooses what was left open of a package: the model, the rows of its cache and their bits."""
