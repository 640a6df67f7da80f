"""Prints MLX's peak memory for runs of the bundled demo model: kv,max_kv,step,tokens each."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path

import mlx.core as mx
from mlx_lm.utils import load_model

import h2o_pack
import h2o_py

GENERATED = 8


def peak(model, kv: str, max_kv: int, step: int, tokens: int) -> int:
    generate_step = importlib.import_module("mlx_lm.generate").generate_step
    caches = h2o_py.make_h2o_cache(model, h2o_py.H2OConfig(max_kv), kv=kv)
    prompt = mx.random.randint(0, 1000, (tokens - GENERATED,))
    mx.eval(prompt)
    mx.synchronize()
    mx.reset_peak_memory()
    steps = generate_step(
        prompt, model, max_tokens=GENERATED, prompt_cache=caches, prefill_step_size=step
    )
    assert len(list(steps)) == GENERATED
    return mx.get_peak_memory()


def main() -> None:
    warnings.simplefilter("ignore")
    h2o_py.install_routing()
    model, _ = load_model(Path(h2o_pack.__file__).parent / "models" / "demo")
    mx.eval(model.parameters())
    for run in sys.argv[1:]:
        kv, *numbers = run.split(",")
        sys.stdout.write(f"{peak(model, kv, *map(int, numbers))}\n")


if __name__ == "__main__":
    main()
