"""h2o-pack: Swift packages of language models whose KV cache stays within a budget."""

__version__ = "0.1.0"
