"""Checks that upstream's sources still have the parts that h2o-pack relies on."""
