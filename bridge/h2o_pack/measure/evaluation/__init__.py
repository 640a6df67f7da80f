"""What an eviction policy costs: perplexity, recall and retention through the real cache.

`preset` says what is run, `tasks` and `chat_tasks` what is read and asked, `contenders` the
caches, `reading` runs them side by side, `statistics` says which differences are real, and
`report` is the result.
"""
