"""Checks what h2o-pack needs on this machine; each finding has a remedy.

A check is a function of the surroundings that returns one finding; `check_up` runs all.
"""
