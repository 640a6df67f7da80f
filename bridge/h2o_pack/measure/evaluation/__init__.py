"""What an eviction policy costs: perplexity, recall and retention through the real cache.

`text` and `samples` make what is read and asked, `contenders` the caches, `lockstep` runs
them side by side, `statistics` says which differences are real, and `results` is the result.
"""
