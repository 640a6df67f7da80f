"""Compares a package on disk with what h2o-pack wrote down about it."""
