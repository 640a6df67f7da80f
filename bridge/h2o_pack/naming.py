"""Names in the generated package: of the package, its module, and Swift strings."""

from __future__ import annotations

import hashlib
import html
import re
import unicodedata

from h2o_pack.errors import shown, usage_error

FALLBACK = "H2O"
LONGEST = 64
BUNDLE_ID = re.compile(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
LONGEST_ID = 155  # characters; Xcode refuses more
REPLACEMENT = "\ufffd"
SURROGATE = re.compile(
    "[\ud800-\udfff]"
)  # Python represents a byte that is not UTF-8 by a surrogate


def package_name(name: str) -> str:
    """Make a name of ASCII that SwiftPM, file systems and Xcode accept.

    Letters of other scripts are transliterated.
    """
    from anyascii import anyascii  # its tables are read only where a name is made

    plain = anyascii("".join(c if is_written(c) else "-" for c in name))
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", plain)[:LONGEST].strip("-._")
    return cleaned or FALLBACK


def is_written(character: str) -> bool:
    """Whether a character is ASCII, or part of a word or number of some script."""
    return character.isascii() or unicodedata.category(character)[0] in "LMN"


def name_remarks(name: str) -> tuple[str, ...]:
    """Return a note if the package gets another name, since `name` has no usable character."""
    package = package_name(name)
    if package != FALLBACK or name.startswith(FALLBACK):
        return ()
    return (f"the name {shown(name)} has no letter, so the package is called {package}",)


def module_name(package: str) -> str:
    """Make the beginning of a Swift module's name; the module is `<this>Model`.

    The suffix keeps it apart from Swift's keywords and from other modules; a leading digit gets
    an `M`, and each word begins with a capital. Only numbers keep a `_` before or after them.
    """
    words = re.sub(r"[^A-Za-z0-9]+", "_", package_name(package)).strip("_") or FALLBACK
    cleaned = re.sub(r"(?<=[A-Za-z])_([A-Za-z])", lambda match: match[1].upper(), words)
    if cleaned[0].isdigit():
        cleaned = "M" + cleaned
    return cleaned[0].upper() + cleaned[1:]


def file_name(name: str, package: str) -> str:
    """Return the name as the name of a folder; the package's name if nothing is left of it."""
    kept = re.sub(r'[\\/:*?"<>|]+', "-", display_name(name, package)).strip("-. ")
    return kept.encode()[:LONGEST].decode("utf-8", "ignore").strip("-. ") or package


def model_display_name(model_id: str) -> str:
    """Return the last part of a hub id, or the short name or folder name itself."""
    return model_id.rstrip("/").rpartition("/")[2]


def bundle_id(package: str, maker: str = "") -> str:
    """Return the bundle identifier of an app for which the user gives none.

    Apple registers an identifier once, for one team. maker: distinguishes the makers of
    packages of the same name.
    """
    own = f"-{hashlib.sha256(f'{maker}/{package}'.encode()).hexdigest()[:8]}" if maker else ""
    return f"org.example.{re.sub('[._]', '-', package)}{own}"


def check_bundle_id(value: str) -> str:
    """Return a valid bundle identifier; UserError if Apple does not accept it."""
    if len(value) <= LONGEST_ID and BUNDLE_ID.fullmatch(value):
        return value
    raise usage_error(
        f"--bundle-id {shown(value)} is not a bundle identifier",
        "Give ASCII letters, digits and hyphens in two or more parts with periods "
        f"between them, {LONGEST_ID} characters at most, such as com.example.Chat.",
    )


def display_name(name: str, package: str) -> str:
    """Return the name below the app's icon; the package's name if no character can be shown."""
    return one_line(name).strip(REPLACEMENT + " ") or package


def asset_pack_id(package: str) -> str:
    """Return the name under which Apple hosts the model of a package."""
    return f"{package}.model"


def one_line(value: str) -> str:
    """Write any string as one line; characters that cannot be shown become U+FFFD."""
    characters = (c if c.isprintable() or c.isspace() else REPLACEMENT for c in value)
    return " ".join("".join(characters).split())


def readable(value: str) -> str:
    """Return text for JSON and terminals; bytes that are not UTF-8 become U+FFFD."""
    return SURROGATE.sub(REPLACEMENT, value)


def xml_text(value: str) -> str:
    """Write any string as XML text of ASCII characters."""
    return html.escape(value, quote=False).encode("ascii", "xmlcharrefreplace").decode()


def swift_string(value: str) -> str:
    r"""Write any string as a Swift literal, quotes included.

    Every character outside printable ASCII, and each of `"` and `\`, is written
    as `\u{…}`, `\"` or `\\`; so `\(` never interpolates and no editor or
    encoding can change the text. Lone surrogates become U+FFFD.
    """
    return '"' + "".join(map(swift_character, value)) + '"'


def swift_lines(value: str, indent: int) -> str:
    """Write any string as a Swift literal; the lines of several are indented by `indent`."""
    first, *others = lines = value.splitlines() or [""]
    if not others:
        return swift_string(first)
    margin = " " * indent
    escaped = ("".join(map(swift_character, line)) for line in lines)
    body = "\n".join(margin + line if line else "" for line in escaped)
    return f'"""\n{body}\n{margin}"""'


def swift_character(character: str) -> str:
    """Escape one character of a Swift string literal."""
    if character in '"\\':
        return "\\" + character
    if " " <= character <= "~":
        return character
    surrogate = unicodedata.category(character) == "Cs"
    return f"\\u{{{ord(REPLACEMENT if surrogate else character):X}}}"
