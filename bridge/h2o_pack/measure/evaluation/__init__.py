"""Measures the quality lost to eviction with the real cache: perplexity, recall and retention.

`preset` defines the experiments, `tasks` and `chat_tasks` make the texts and questions, and
`contenders` the caches. `reading` lets all caches read the same samples, `statistics` decides
which differences are significant, and `evaluation_report` has the results.
"""
