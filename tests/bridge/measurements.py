"""Measurements as an app writes them."""


def run_after(tokens: int, speed: float, **changes) -> dict[str, object]:
    return {
        "name": "16+recall",
        "title": "the app's caches",
        "prompt_tokens": tokens,
        "tokens_per_second": speed,
        "prompt_tokens_per_second": None if tokens == 1 else 300.0,
        "microseconds": 1e6 / speed,
        "first_quartile": 1e6 / speed,
        "third_quartile": 1e6 / speed,
        "bytes": 100_000_000,
        "peak_bytes": 500_000_000,
        "speed": None,
        **changes,
    }


MACHINE = (
    "processor",
    "system",
    "instruction_set",
    "python",
    "mlx",
    "mlx_lm",
    "h2o_pack",
    "gpu",
)


def machine(identifier: str) -> dict[str, object]:
    empty = dict.fromkeys(MACHINE, "")
    known = {"cores": 6, "load": None, "identifier": identifier, "memory_bytes": 8 << 30}
    return {**empty, **known, "system_version": "Version 26.1"}


MEASURED = {
    "format": 1,
    "machine": machine("iPhone16,1"),
    "model": "mlx-community/Qwen3-4B-4bit",
    "dtype": "bfloat16",
    "layers": 36,
    "max_kv": 512,
    "prefill_step": 512,
    "tokens": 64,
    "weights_bytes": 2_262_920_192,
    "footprint_bytes": 3_000_000_000,
    "thermal_state": "fair",
    "kernels": [],
    "caches": [run_after(1, 20.0), run_after(4096, 10.0)],
    "not_measured": [{"name": "16+recall", "prompt_tokens": 16384, "reason": "no memory"}],
}
