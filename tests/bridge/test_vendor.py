from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from h2o_pack import assets, lock
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.package import make_package
from h2o_pack.plan import CacheOptions, make_plan
from h2o_pack.vendoring import vendor as vendoring
from h2o_pack.vendoring.vendor import vendor
from tests.bridge.trees import build_tree, names, tree

EDITS = """
[[copy]]
package = "mlx-swift"
path = "Package.swift"

[[copy]]
package = "mlx-swift"
path = "Source"
needs = ["all.h"]

[[copy]]
package = "mlx-swift-lm"
path = "Package.swift"

[[copy]]
package = "swift-numerics"
path = "Package.swift"
only = "linux"

[[edit]]
package = "mlx-swift"
file = "Source/all.h"
anchor = '^#include "fast\\.h"$'
where = "after"
insert = "#include \\"h2o.h\\"\\n"

[[edit]]
package = "mlx-swift-lm"
file = "Package.swift"
anchor = 'url: ".*"'
where = "replace"
replacement = 'path: "../mlx-swift"'

[[edit]]
package = "mlx-swift"
file = "Package.swift"
anchor = '^gpu\\n'
where = "replace"
replacement = "// no gpu\\n"
only = "linux"

[[patch]]
package = "mlx-swift"
file = "Source/kernel.h"
edits = "../../metal/edits/kernels.toml"

[[file]]
package = "mlx-swift"
source = "cexport/h2o/*.cpp"
destination = "Source/h2o/"
"""

KERNEL_EDITS = """
[shared]
package = "mlx"
version = "0.31.1"
file = "kernel.h"

[[edit]]
anchor = '^score;$'
where = "after"
insert = "store;\\n"
"""

UPSTREAM = {
    "mlx-swift/Package.swift": "gpu\ncpu\n",
    "mlx-swift/Source/all.h": '#include "fast.h"\n',
    "mlx-swift/Source/deep/x.cpp": "int x;\n",
    "mlx-swift/Source/kernel.h": "score;\n",
    "mlx-swift/Tests/t.swift": "not needed\n",
    "mlx-swift-lm/Package.swift": 'dependency(url: "https://github.com/x")\n',
    "swift-numerics/Package.swift": "numerics\n",
}


@pytest.fixture
def upstream(tmp_path) -> Path:
    return build_tree(tmp_path / "upstream", UPSTREAM)


@pytest.fixture
def package(model, tmp_path, monkeypatch) -> Path:
    output = make_package(make_plan(model, CacheOptions(max_kv=512)), tmp_path / "Demo").folder
    small = build_tree(
        tmp_path / "small",
        {
            vendoring.EDITS: EDITS,
            "metal/edits/kernels.toml": KERNEL_EDITS,
            "cexport/h2o/a.cpp": "int a;\n",
            "cexport/h2o/b.cpp": "int b;\n",
        },
    )
    monkeypatch.setattr(assets, "root", lambda: small)
    return output


def test_only_what_building_needs_is_copied_and_edited(package, upstream):
    vendor(package, upstream, "apple")
    assert tree(package / "Vendor") == {
        "mlx-swift/Package.swift": "gpu\ncpu\n",
        "mlx-swift/Source/all.h": '#include "fast.h"\n#include "h2o.h"\n',
        "mlx-swift/Source/deep/x.cpp": "int x;\n",
        "mlx-swift/Source/h2o/a.cpp": "int a;\n",
        "mlx-swift/Source/h2o/b.cpp": "int b;\n",
        "mlx-swift/Source/kernel.h": "score;\nstore;\n",
        "mlx-swift-lm/Package.swift": 'dependency(path: "../mlx-swift")\n',
    }
    assert tree(upstream) == UPSTREAM


def test_edits_for_linux_are_made_for_linux_only(package, upstream):
    vendor(package, upstream, "linux")
    files = tree(package / "Vendor")
    assert files["mlx-swift/Package.swift"] == "// no gpu\ncpu\n"
    assert files["swift-numerics/Package.swift"] == "numerics\n"


def test_the_lock_has_the_sha256_of_each_edited_file_before_and_after(package, upstream):
    vendor(package, upstream, "apple")
    recorded = lock.read(package).vendor
    assert recorded is not None
    assert recorded.host == "apple"
    before, after = (b'#include "fast.h"\n', b'#include "fast.h"\n#include "h2o.h"\n')
    assert recorded.files[0] == lock.EditedFile(
        "mlx-swift/Source/all.h", lock.sha256(before), lock.sha256(after)
    )
    assert [file.path for file in recorded.files] == [
        "mlx-swift/Source/all.h",
        "mlx-swift/Source/kernel.h",
        "mlx-swift-lm/Package.swift",
    ]


def test_other_edits_of_the_kernels_make_the_vendor_folder_out_of_date(package, upstream):
    before = vendor(package, upstream, "apple").edits
    kernels = assets.root() / "metal/edits/kernels.toml"
    kernels.write_text(KERNEL_EDITS.replace("store;", "keep;"))
    assert vendoring.digest(assets.root()) != before
    assert vendor(package, upstream, "apple").edits == vendoring.digest(assets.root())


def test_sources_that_are_edited_already_are_taken_as_they_are(package, upstream, tmp_path):
    vendor(package, upstream, "linux")
    first = tree(package / "Vendor")
    shutil.copytree(package / "Vendor", tmp_path / "edited")
    vendor(package, tmp_path / "edited", "linux")
    assert tree(package / "Vendor") == first


def refusal(package: Path, upstream: Path | None, code: ExitCode) -> str:
    with pytest.raises(UserError) as caught:
        vendor(package, upstream, "apple")
    assert caught.value.code == code
    return str(caught.value)


def test_without_sources_the_message_says_where_to_get_them(package):
    assert refusal(package, None, ExitCode.USAGE) == (
        "this version of h2o-pack does not fetch upstream's sources itself. Clone mlx-swift "
        "0.31.6, mlx-swift-lm 3.31.4 with their submodules into one folder and give that as "
        "--upstream."
    )


def test_a_missing_checkout_is_named_and_nothing_is_left(package, upstream):
    shutil.rmtree(upstream / "mlx-swift" / "Source")
    before = tree(package)
    assert refusal(package, upstream, ExitCode.USAGE) == (
        f"mlx-swift/Source is missing ({upstream}). --upstream should hold mlx-swift 0.31.6, "
        "mlx-swift-lm 3.31.4, with their submodules."
    )
    assert tree(package) == before
    assert not [name for name in names(package) if "h2o-new" in name]


def test_a_clone_without_its_submodules_is_named(package, upstream):
    (upstream / "mlx-swift/Source/all.h").unlink()
    with pytest.raises(UserError, match=r"mlx-swift/Source/all\.h is missing .*submodules"):
        vendor(package, upstream, "apple")
    assert not (package / "Vendor").exists()


def test_drifted_sources_leave_the_earlier_vendor_folder_whole(package, upstream):
    vendor(package, upstream, "apple")
    before = tree(package)
    (upstream / "mlx-swift/Source/all.h").write_text("// rewritten upstream\n")
    said = refusal(package, upstream, ExitCode.VERSION)
    assert "mlx-swift/Source/all.h, expected as in mlx-swift 0.31.6" in said
    assert "matches 0 times instead of 1" in said
    assert tree(package) == before


def test_an_interruption_leaves_the_earlier_vendor_folder_whole(package, upstream, monkeypatch):
    vendor(package, upstream, "apple")
    before = tree(package)

    def stop(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(vendoring, "add_files", stop)
    with pytest.raises(KeyboardInterrupt):
        vendor(package, upstream, "linux")
    assert tree(package) == before


def test_a_vendor_folder_of_somebody_else_is_left_alone(package, upstream):
    build_tree(package, {"Vendor/mine": "mine"})
    assert refusal(package, upstream, ExitCode.OUTPUT) == (
        f"{package}/Vendor exists and was not made by h2o-pack. "
        "Move it away and run this again."
    )
    assert tree(package / "Vendor") == {"mine": "mine"}


def test_a_folder_that_is_no_package_is_refused(package, upstream, tmp_path):
    assert "is not a package made by h2o-pack" in refusal(tmp_path, upstream, ExitCode.OUTPUT)


def test_a_git_checkout_of_another_commit_is_refused(package, upstream):
    checkout = upstream / "mlx-swift"
    settings = ("user.name=t", "user.email=t@example.org", "commit.gpgsign=false")
    git = ["git", "-C", str(checkout), *(part for each in settings for part in ("-c", each))]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "other"]):
        subprocess.run([*git, *command], check=True)
    said = refusal(package, upstream, ExitCode.VERSION)
    assert said.startswith("mlx-swift is at commit ")
    assert "instead of 0bb916c67f4b" in said
    assert not (package / "Vendor").exists()
