"""How fast bundling is, beside copying and hashing the same file with Python's own means.

`python -m tests.hub.throughput --write` measures with a file of Qwen3-4B-4bit's size and
writes docs/results/packaging.md. Each way runs in a process of its own, in turns; a ratio
is the median over the turns of the ratios within a turn.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.hub import qwen3
from tests.hub.fixture import HubClient
from tests.hub.peak import peak
from tests.hub.server import HubServer

PAGE = Path(__file__).parents[2] / "docs/results/packaging.md"
WAYS = {
    "plain": "`shutil.copyfile`, then `hashlib.sha256` of the copy: the measure",
    "taken over": "`bundle` of a model that the earlier package has: linked, both hashed",
    "copied": "`bundle` of a local model: copied, hashed on the way",
    "plain download": "the hub's client alone, then `hashlib.sha256`: the measure",
    "downloaded": "`bundle` from the hub: fetched and copied, hashed both times",
}


def main() -> None:
    """Measure, print, and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"Write {PAGE.name}.")
    parser.add_argument(
        "--layers", type=int, default=36, help="Of the model; fewer are faster."
    )
    parser.add_argument("--turns", type=int, default=3, help="Times that each way runs.")
    parser.add_argument("--folder", type=Path, help="Where to work, a few GB.")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        measured, size = measure(Path(folder), chosen.layers, chosen.turns)
    text = page(measured, size, chosen.turns)
    print(text)  # noqa: T201
    if chosen.write:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(text, encoding="utf-8")


def measure(folder: Path, layers: int, turns: int) -> tuple[list[dict[str, Any]], int]:
    """Return {way: {seconds, peak}} of each turn, and the bytes of the weights."""
    source = folder / "source"
    source.mkdir()
    contents = qwen3.files(source, layers)
    server = HubServer()
    server.add(qwen3.ID, contents)
    os.environ |= HubClient(server, folder / "huggingface", []).settings
    # Real blocks, so that reading the local model costs what reading costs.
    local = folder / "local"
    local.mkdir()
    shutil.copyfile(source / "model.safetensors", local / "model.safetensors")
    size = (local / "model.safetensors").stat().st_size
    result = [{way: run(way, folder) for way in WAYS} for _turn in range(turns)]
    server.close()
    return result, size


def run(way: str, folder: Path) -> dict[str, float]:
    """Run one way in a process of its own; what it wrote is deleted."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        found = pool.submit(child, way, folder).result()
    for name in ("target", "earlier", "huggingface"):
        shutil.rmtree(folder / name, ignore_errors=True)
    return found


def child(way: str, folder: Path) -> dict[str, float]:
    """Do one thing; return its seconds and the peak of this process's memory in bytes."""
    from h2o_pack.bundling.bundle import bundle
    from h2o_pack.files.layout import MODEL_FOLDER
    from tests.bridge.bundling.sources import local

    target = folder / "target"
    target.mkdir()
    earlier = folder / "earlier"
    if way == "taken over":
        (earlier / MODEL_FOLDER).mkdir(parents=True)
        weights = earlier / MODEL_FOLDER / "model.safetensors"
        shutil.copyfile(folder / "local/model.safetensors", weights)
        settle(weights)
    model = local(folder / "local") if "down" not in way else remote()
    started = time.perf_counter()
    if way == "plain":
        shutil.copyfile(folder / "local/model.safetensors", target / "model.safetensors")
        sha256(target / "model.safetensors")
        settle(target / "model.safetensors")
    elif way == "plain download":
        from huggingface_hub import hf_hub_download

        sha256(Path(hf_hub_download(qwen3.ID, "model.safetensors")))
    else:
        bundle(model, target, earlier=earlier)
    return {"seconds": time.perf_counter() - started, "peak": peak()}


def remote() -> Any:
    """Describe the model on the hub as a listing does, without a timed request."""
    from huggingface_hub import HfApi

    from tests.bridge.bundling.sources import File, Model

    info = HfApi().model_info(qwen3.ID, files_metadata=True)
    files = [each for each in info.siblings or [] if each.rfilename == "model.safetensors"]
    listed = tuple(
        File(each.rfilename, each.size or 0, each.lfs.sha256) for each in files if each.lfs
    )
    return Model(qwen3.ID, listed, info.sha or "")


def sha256(path: Path) -> str:
    """Hash a file as one does by hand."""
    import hashlib

    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def settle(path: Path) -> None:
    """Wait until a copy is on the disk, as `bundle` does."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def page(turns: list[dict[str, Any]], size: int, count: int) -> str:
    """Write the page."""
    rows = []
    for way, what in WAYS.items():
        seconds = statistics.median(turn[way]["seconds"] for turn in turns)
        measure_of = "plain download" if "down" in way else "plain"
        ratio = statistics.median(
            turn[way]["seconds"] / turn[measure_of]["seconds"] for turn in turns
        )
        memory = max(turn[way]["peak"] for turn in turns)
        cells = (what, f"{seconds:.2f}", f"{size / seconds / 1e6:.0f}", f"{ratio:.2f}")
        rows.append(f"| {' | '.join(cells)} | {memory / 1e6:.0f} |")
    table = "\n".join(rows)
    cores = os.cpu_count()
    load = os.getloadavg()[0]
    turned = f"{count} turns" if count > 1 else "1 turn"
    return f"""\
<!-- generated by `python -m tests.hub.throughput --write`, do not edit -->
# Packaging a large model

One file of {size / 1e9:.2f} GB (Qwen3-4B-4bit's tensors, all zero), medians of {turned}, \
on {cores} cores with a load of {load:.1f} at the end. The ratio is to the measure above it, \
in the same turn; below 1 is faster.

| Way | s | MB/s | ratio | peak memory, MB |
|:--|--:|--:|--:|--:|
{table}

The measure of a copy ends, like ours, when the file is on the disk. Hashing is one thread \
for each file, since sha256 takes a file's bytes in order; shards are hashed side by side.
"""


if __name__ == "__main__":
    main()
