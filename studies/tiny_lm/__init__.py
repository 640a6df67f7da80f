"""Trains the bundled demo model: 2 M parameters that recall facts and so show forgetting."""
