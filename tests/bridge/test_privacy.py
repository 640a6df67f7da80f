"""Privacy manifests name what the code uses, and nothing else."""

import pytest

from h2o_pack import assets
from tools.upstream.declared import NAME, declared, privacy, uses

APIS = {api.name: api for api in privacy().api}
TIMESTAMP = "NSPrivacyAccessedAPICategoryFileTimestamp"
PACKAGE = "swift_templates/H2OKit"
APPS = sorted(
    path.parent.relative_to(assets.root()).as_posix()
    for path in (assets.root() / "swift_templates").glob(f"App*/Chat/{NAME}")
)
OF_PACKAGE = ("cexport", "metal", "swift_templates")
NOT_SHIPPED = ("swift_templates/standin", "swift_templates/Tests")


def used(*folders, without=()):
    """Return {category: symbols} of all sources in folders of the assets."""
    root = assets.root()
    symbols = {}
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            place = path.relative_to(root).as_posix()
            if path.is_file() and not place.startswith(tuple(without)):
                for category, symbol in uses(path):
                    symbols.setdefault(category, set()).add(symbol)
    return symbols


def test_the_manifest_of_the_package_names_what_its_sources_use():
    assert "swift_templates/App/Chat" in APPS
    symbols = used(*OF_PACKAGE, without=(*NOT_SHIPPED, "swift_templates/App"))
    assert symbols[TIMESTAMP] == {"stat", "fstat", "lstat"}
    assert set(declared(assets.root() / PACKAGE / NAME)) == set(symbols)


@pytest.mark.parametrize("folder", APPS)
def test_the_manifest_of_the_app_names_what_its_sources_use(folder):
    symbols = used("swift_templates/App", folder)
    assert set(declared(assets.root() / folder / NAME)) == set(symbols)


@pytest.mark.parametrize("folder", [*APPS, PACKAGE])
def test_each_reason_is_one_that_apple_takes(folder):
    for category, reasons in declared(assets.root() / folder / NAME).items():
        assert reasons
        assert set(reasons) <= set(APIS[category].reasons)


@pytest.mark.parametrize(
    ("text", "symbols"),
    [
        ("struct stat status; ::fstat(file, &status);", {"fstat"}),
        ("let free = values.volumeAvailableCapacityForImportantUsage", 1),
        ("UserDefaults.standard.set(true)", {"UserDefaults"}),
        ("let uptime = ProcessInfo.processInfo.systemUptime", {"systemUptime"}),
        ('let page = "https://a.b"; let date = file.modificationDate', {"modificationDate"}),
        ("// UserDefaults, and systemUptime", set()),
        ("/* stat(path) */ object.stat(path); my_stat(path)", set()),
    ],
)
def test_a_use_is_found_and_a_mention_is_not(tmp_path, text, symbols):
    source = tmp_path / "source.swift"
    source.write_text(text)
    names = {symbol for _, symbol in uses(source)}
    assert len(names) == symbols if isinstance(symbols, int) else names == symbols


def test_no_symbol_belongs_to_two_categories():
    names = [symbol for api in APIS.values() for symbol in (*api.symbols, *api.calls)]
    assert len(names) == len(set(names))
