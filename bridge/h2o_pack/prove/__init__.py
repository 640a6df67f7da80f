"""Proof of what a machine does: a report, how it is made, checked and kept."""
