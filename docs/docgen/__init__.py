"""Makes pages of the documentation from the code and the facts that they describe."""
