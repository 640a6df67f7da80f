"""Models: what they are called, where they lie, what their config says."""
