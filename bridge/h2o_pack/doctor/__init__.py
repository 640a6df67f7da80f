"""What this machine has of what h2o-pack needs, each finding with its remedy.

A check is a function of the surroundings that returns one finding; `checkup` runs all.
"""
