"""What a model's attention looks like, where a step's time goes, and budgets from both.

`run.run(Options)` reads text through a model of mlx_lm with its own caches and returns a
`report.Profile`; `budget_rule` turns one into budgets that differ from layer to layer.
"""
