"""Measures the peak of MLX's counter in runs of the demo model, each after the other.

`python peaks.py '[[STORAGE, MAX_KV, STEP, TOKENS, BITS], ...]'` prints the peaks as a list in
JSON. STEP tokens of the prompt are read at once; TOKENS counts those of the prompt and the
answer; BITS are those of an archive, null without recall.
"""

import importlib
import json
import sys
import warnings

import mlx.core as mx

import h2o_py
from h2o_pack.measure import models

GENERATED = 8
VOCABULARY = 1000  # of the prompt's random ids


def peak(model, kv, max_kv, step, tokens, bits):
    """Return the highest value of MLX's counter in one run."""
    generate = importlib.import_module("mlx_lm.generate")
    recall = None if bits is None else h2o_py.H2ORecall(archive_bits=bits)
    config = h2o_py.H2OConfig(max_kv, recall=recall)
    caches = h2o_py.make_h2o_cache(model, config, kv=kv)
    prompt = mx.random.randint(0, VOCABULARY, (tokens - GENERATED,))
    mx.eval(prompt)
    # MLX may still be computing the token after the last one of the run before.
    mx.synchronize()
    mx.synchronize(generate.generation_stream)
    mx.reset_peak_memory()
    steps = generate.generate_step(
        prompt, model, max_tokens=GENERATED, prompt_cache=caches, prefill_step_size=step
    )
    for _ in steps:
        pass
    return mx.get_peak_memory()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    h2o_py.install_routing()
    demo, _ = models.load("demo")
    mx.eval(demo.parameters())
    sys.stdout.write(json.dumps([peak(demo, *run) for run in json.loads(sys.argv[1])]))
