"""Ways to be wrong on purpose, which the tests' build of the demo package contains.

An environment variable chooses one while the tests run; without it, none does anything.
"""

from collections.abc import Mapping
from pathlib import Path

CHOICE = "H2O_FAULT"
CORE = "Vendor/mlx-swift/Source/Cmlx/h2o"
# The case that shows it, the file, what is in it, and what takes its place where FAULT holds.
FAULTS = {
    "wrong tie rule": (
        "not routed",
        f"{CORE}/policy.cpp",
        "return ledger.positions[a] < ledger.positions[b];",
        "return FAULT != (ledger.positions[a] < ledger.positions[b]);",
    ),
    "score not averaged over the group": (
        "float32",
        f"{CORE}/policy.cpp",
        "query.normalizers[g] / group",
        "query.normalizers[g] / (FAULT ? 1 : group)",
    ),
    "the ring has the precision of the pool": (
        "kv heavy=4,recent=8",
        f"{CORE}/h2o.cpp",
        ".recent_bits = config.recent_bits,",
        ".recent_bits = FAULT && config.recent_bits ? config.key_bits : config.recent_bits,",
    ),
    "offset reset at eviction": (
        "float16",
        f"{CORE}/layer_cache.cpp",
        "  length_ = std::min(length_, config_.max_size);\n",
        "  length_ = std::min(length_, config_.max_size);\n"
        "  offset_ = FAULT ? std::min(offset_, config_.max_size) : offset_;\n",
    ),
    "the whole chunk asks": (
        "recall",
        f"{CORE}/layer_cache_archive.cpp",
        "std::min(tokens, recall_->ask)",
        "(FAULT ? tokens : std::min(tokens, recall_->ask))",
    ),
    "one archived token too few is read": (
        "recall k8v4",
        f"{CORE}/layer_cache_archive.cpp",
        "read_matching(reading, recall_->reach, *archive_, s)",
        "read_matching(reading, recall_->reach - (FAULT ? 1 : 0), *archive_, s)",
    ),
    "attention without its mask": (
        "kv 8",
        "Sources/H2OKit/H2OKVCache.swift",
        "values: values, scale: scale, mask: mask)",
        "values: values, scale: scale, mask: FAULT ? .none : mask)",
    ),
}
IN_CXX = (
    f'([] {{ static const char* const chosen = ::getenv("{CHOICE}");'
    ' return chosen && !::strcmp(chosen, "NAME"); }())'
)
IN_SWIFT = f'(getenv("{CHOICE}").map {{ String(cString: $0) }} == "NAME")'
CXX_HEAD, SWIFT_HEAD = "#include <stdlib.h>\n#include <string.h>\n", "import Foundation\n"


def with_faults(files: Mapping[str, Path | str]) -> dict[str, Path | str]:
    """Put every fault into a package's files, {path: source}."""
    texts: dict[str, str] = {}
    for fault, (_, path, text, instead) in FAULTS.items():
        swift = path.endswith(".swift")
        head = SWIFT_HEAD if swift else CXX_HEAD
        source = files[path]
        assert isinstance(source, Path)
        before = texts.get(path, head + source.read_text("utf-8"))
        assert before.count(text) == 1, f"{path} has changed: break it in another way"
        condition = (IN_SWIFT if swift else IN_CXX).replace("NAME", fault)
        texts[path] = before.replace(text, instead.replace("FAULT", condition))
    return {**files, **texts}
