"""Writes the pages of finished studies, whose programs are in earlier commits."""
