"""The one source of what several languages must agree on, and its generator.

`policy.toml` has the settings of the eviction policy, their defaults and rules,
`storages.toml` how rows are stored, and `errors.toml` what a configuration is refused for.
`python -m interface` writes them to the languages: a folder of `languages/` has the templates
of one. `python -m interface --check` names what is stale.
"""
