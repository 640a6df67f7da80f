"""The system prompt's caches, computed when packaging so that no device has to."""
