"""An app that the package is to be added to: what it depends on, and what collides."""
