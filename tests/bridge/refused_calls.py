"""Calls of the program that it refuses; what it says of each is in tests/golden/pages."""

import os
import shlex
import tempfile
from pathlib import Path

from click.testing import CliRunner

import h2o_pack
from h2o_pack.cli import main
from tests.bridge.trees import names, write_model

PACKAGE = Path(h2o_pack.__file__).parent

IOS = "ios --model demo --max-kv"
EVAL = "eval --preset text --model demo --max-kv 32"
CALLS = (
    "pairty",
    "ios",
    "ios --model demo --kv mixed --sink-size 8",
    "ios --model dmo --max-kv 3 --device 'iPhnoe16,1' --budgets none.json",
    f"{IOS} 4096",
    f"{IOS} many",
    f"{IOS} 64 --wrong",
    f"{IOS} 64 --download http://models.example.com/1",
    f"{IOS} 64 --download https://me:secret@models.example.com/1",
    f"{IOS} 64 --download https://models.example.com/1?token=2",
    f"{IOS} 64 --download https://models.example.com --asset-pack",
    f"{IOS} 64 --pin 9",
    f"{IOS} 64 --pin 9:3",
    f"{IOS} 64 --score max",
    f"{IOS} 128 --pin 0:100",
    f"{IOS} 256 --recall --recall-reach -1",
    f"{IOS} 256 --recall --recall-ask 0",
    *(f"{IOS} 256 --device '{name}'" for name in ("iPhone 15 Prp", "iPhone 11")),
    "plan --model demo --max-kv 64 --kv rotated4 --context 5000",
    "plan --model demo --max-kv 64 --context 0",
    "plan --model demo --max-kv 64 --prefill-step 0",
    "plan --model demo --max-kv 3",
    "plan --model demo --max-kv 50000",
    "plan --model Qwen3-4B-4bits",
    f"{IOS} 64 --pin x",
    "plan --model demo --kv mixed",
    "plan --model demo --policy paper --recent-budget 9",
    "plan --model demo --recall",
    "ios --model demo --archive files --dry-run",
    "chat --model demo --sink-size 8",
    *(
        f"plan --model {folder}"
        for folder in ("./missing", "/nowhere/model", "~nobody-here/model")
    ),
    "devices Nokia",
    "bench --max-kv 12",
    "bench --tokens 0",
    "eval --preset demos --model demo",
    "plan --device 'iPhone 15' --all",
    *(
        f"{EVAL} --contenders {contender}"
        for contender in (
            "defualt",
            "default/k8v8",
            "rotating/8",
            "rotating+recall",
            "full+recall",
            "full+budgets",
            "default+budgets",
        )
    ),
    *(f"eval --preset text --model demo --max-kv {budget}" for budget in ("1/0", "many")),
    f"{EVAL} --seeds one",
    f"{EVAL} --batch 0",
    *(f"{EVAL} --{option} none" for option in ("text", "layer-budgets")),
    "profile --model demo --tokens 3",
    "profile --model qwen3-4b",
    "profile",
    "profile --budgets made.json",
    "profile --budgets made.json --max-kv 64",
    "profile --profile none --max-kv 64 --budgets made.json",
    "profile --model demo --max-kv 64",
)
BUDGETS = (
    "{",
    "[]",
    '{"layers": []}',
    '{"format": 2, "layers": []}',
    '{"format": 1, "layers": {}}',
    '{"format": 1, "layers": [3]}',
    '{"format": 1, "layers": [null, {"heavy_budget": 3}]}',
    '{"format": 1, "layers": [{"heavy_budget": 3, "recent_budget": 0}]}',
    '{"format": 1, "layers": [{"heavy_budget": true, "recent_budget": 4}]}',
    '{"format": 1, "layers": [{"heavy_budget": -1, "recent_budget": 9}]}',
    '{"format": 1, "layers": [null]}',
)


def transcript() -> str:
    """Make each call in an empty folder, where it must leave nothing."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            texts = [refusal(call) for call in CALLS]
            assert names(Path(folder)) == []
            for text in BUDGETS:
                Path("budgets.json").write_text(text, "utf-8")
                message = refusal(f"{IOS} 256 --budgets budgets.json")
                texts.append(f"budgets.json: {text}\n{message}")
            texts.extend(refusal(call) for call in odd_models(Path()))
            assert names(Path(folder)) == ["budgets.json", "deep", "notes", "torn"]
        finally:
            os.chdir(before)
    return "\n".join(texts)


def odd_models(folder: Path) -> list[str]:
    """Write models that cannot run, and a folder of notes; return the calls that use them."""
    write_model(folder / "deep", num_hidden_layers=3)
    torn = write_model(folder / "torn") / "tokenizer.json"
    torn.write_text("{", "utf-8")
    (folder / "notes").mkdir()
    (folder / "notes/todo.md").write_text("", "utf-8")
    others = ("deep", "torn", "notes")
    calls = [f"ios --model ./{name} --max-kv 256 --output Out" for name in others]
    return [*calls, *(f"{IOS} 64 --output notes{rest}" for rest in ("", " --dry-run"))]


def refusal(call: str) -> str:
    """Return the call as typed, what is said, and the exit code."""
    result = CliRunner().invoke(main, shlex.split(call), prog_name="h2o-pack")
    assert result.stdout == "", call
    assert "Traceback" not in result.stderr, call
    output = result.stderr.replace(f"{PACKAGE}/", "").replace(f"{Path.cwd()}/", "")
    return f"$ h2o-pack {call}\n{output}[{result.exit_code}]\n"
