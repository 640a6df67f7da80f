"""The documentation: pages, and the programs that make the generated ones."""
