"""Holds the demo model to random JSON Schemas and checks its replies."""
