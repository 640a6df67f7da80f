"""Programs that need more than the project's tests install; their results are committed."""
