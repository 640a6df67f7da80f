"""The pages of finished studies; their programs are in the project's history."""
