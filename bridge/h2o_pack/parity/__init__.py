"""Shows that Python and Swift give the same output, level by level."""
