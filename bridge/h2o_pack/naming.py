"""Names in the generated package: of the package, its module, and Swift strings."""

from __future__ import annotations

import re
import unicodedata

from h2o_pack.errors import shown

FALLBACK = "H2O"
LONGEST = 64
REPLACEMENT = "\ufffd"


def package_name(name: str) -> str:
    """Make a name that SwiftPM, file systems and Xcode all take.

    ASCII letters, digits, `.`, `_` and `-`; what else was there becomes `-`.
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", plain)[:LONGEST].strip("-._")
    return cleaned or FALLBACK


def name_remarks(name: str) -> tuple[str, ...]:
    """Say that nothing is left of a name, where that is so."""
    package = package_name(name)
    if package != FALLBACK or name.startswith(FALLBACK):
        return ()
    said = (
        f"the name {shown(name)} has no letter or digit of ASCII, which SwiftPM and Xcode "
        f"need: the package is called {package}. Give another one with --name."
    )
    return (said,)


def module_name(package: str) -> str:
    """Make the start of a Swift module's name; the module is `<this>Model`.

    The suffix keeps it apart from Swift's keywords and from other modules; a
    leading digit gets an `M`, and the first letter is a capital.
    """
    cleaned = re.sub(r"[^A-Za-z0-9]+", "_", package_name(package)).strip("_") or FALLBACK
    if cleaned[0].isdigit():
        cleaned = "M" + cleaned
    return cleaned[0].upper() + cleaned[1:]


def model_display_name(model_id: str) -> str:
    """Return the last part of a hub id, or the alias or folder name itself."""
    return model_id.rstrip("/").rpartition("/")[2]


def app_id(package: str) -> str:
    """Return the bundle identifier that the generated app begins with."""
    return f"org.example.{package.replace('_', '-')}"


def asset_pack_id(package: str) -> str:
    """Return the name under which Apple hosts the model of a package."""
    return f"{package}.model"


def one_line(value: str) -> str:
    """Write any string as one line of readable text; what cannot be shown is U+FFFD."""
    shown = (c if c.isprintable() or c.isspace() else REPLACEMENT for c in value)
    return " ".join("".join(shown).split())


def swift_string(value: str) -> str:
    r"""Write any string as a Swift literal, quotes included.

    Every character outside printable ASCII, and each of `"` and `\`, is written
    as `\u{…}`, `\"` or `\\`; so `\(` never interpolates and no editor or
    encoding can change the text. Lone surrogates become U+FFFD.
    """
    return '"' + "".join(map(swift_character, value)) + '"'


def swift_character(character: str) -> str:
    """Escape one character of a Swift string literal."""
    if character in '"\\':
        return "\\" + character
    if " " <= character <= "~":
        return character
    surrogate = unicodedata.category(character) == "Cs"
    return f"\\u{{{ord(REPLACEMENT if surrogate else character):X}}}"
