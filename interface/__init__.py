"""Definitions that all languages share, and the generator that writes them to each language.

`policy.toml` defines the settings of the eviction policy and their defaults, `storages.toml`
the ways to store rows, and `errors.toml` the messages of errors. `python -m interface`
writes the generated files, from one folder of templates for each language in `languages/`.
`python -m interface --check` lists stale files and writes nothing.
"""
