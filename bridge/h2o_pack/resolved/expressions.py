"""Rewrites a regular expression so that Oniguruma and ICU read it alike.

Python's tokenizers use Oniguruma with Ruby's syntax, the app uses ICU (NSRegularExpression) and
searches each time in what is left of the text. The constructs that both read alike are copied,
some are rewritten, and all others are refused by name.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

DEEPEST = 30
"""The most groups or sets inside each other."""
LONGEST = 20_000
"""The most characters of an expression."""
WORD = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}"
"""What `\\w` of Oniguruma contains; that of ICU also contains the two joiners."""
CATEGORIES = re.compile(
    "C[cfnos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?|Alphabetic"
)
SCRIPTS = frozenset(
    {
        *("Arabic", "Armenian", "Bengali", "Cyrillic", "Devanagari", "Ethiopic", "Georgian"),
        *("Greek", "Gujarati", "Gurmukhi", "Han", "Hangul", "Hebrew", "Hiragana", "Kannada"),
        *("Katakana", "Khmer", "Lao", "Latin", "Malayalam", "Mongolian", "Myanmar", "Oriya"),
        *("Sinhala", "Tamil", "Telugu", "Thai", "Tibetan"),
    }
)
SAME_ESCAPES = frozenset("sSdDrntf")
REPEATS = re.compile(r"\{(\d{0,4})(,?)(\d{0,4})\}")
FLAG_I = re.compile(r"\?i([:)])")
NUMBER = re.compile(r"x\{([0-9A-Fa-f]{1,6})\}|x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})")
SURROGATES = range(0xD800, 0xE000)
MANY = 9999
INSIDE = frozenset("[]{}()*+?.^$|\\-&~#")


class ExpressionError(ValueError):
    """An expression that the two libraries read in different ways; the text says where."""


@dataclass
class Reader:
    """Reads one expression from left to right. position: index of the next character."""

    text: str
    position: int = 0

    def rewritten(self) -> str:
        """Return the expression as both libraries read it."""
        text, least = self.alternatives(0)
        if self.position < len(self.text):
            raise ExpressionError('has a ")" without "("')
        if least == 0:
            raise ExpressionError("matches the empty text, so that the app searches forever")
        return text

    def next(self) -> str:
        """Return the next character and move on; "" at the end."""
        character = self.text[self.position : self.position + 1]
        self.position += 1
        return character

    def peek(self, text: str) -> bool:
        """Whether a text comes next; if so, move past it."""
        if self.text.startswith(text, self.position):
            self.position += len(text)
            return True
        return False

    def alternatives(self, depth: int) -> tuple[str, int]:
        """Read up to the end of a group; return it and the least characters that match."""
        if depth > DEEPEST:
            raise ExpressionError(f"has more than {DEEPEST} groups inside each other")
        parts, least, widths = [""], 0, []
        while self.position < len(self.text) and self.text[self.position] != ")":
            if self.peek("|"):
                widths.append(least)
                parts.append("|")
                least = 0
                continue
            atom, width = self.atom(depth)
            atom, width = self.repeated(atom, width)
            parts.append(atom)
            least += width
        return "".join(parts), min([*widths, least])

    def atom(self, depth: int) -> tuple[str, int]:
        """Read one atom; return it and the least characters that match."""
        start = self.position
        character = self.next()
        if character == "(":
            return self.group(depth)
        if character == "[":
            self.position = start
            return self.set(depth), 1
        if character == "\\":
            return self.escape(inside=False)
        if character == "^":
            raise ExpressionError('has "^", which the app also finds inside a text')
        if character in "*+?":
            raise ExpressionError(f'has "{character}" with nothing before it')
        special = {".": (r"[^\n]", 1), "$": (r"(?=\n|\z)", 0)}
        escaped = "\\" * (character in "{}]") + character
        return special.get(character, (escaped, 1))

    def group(self, depth: int) -> tuple[str, int]:
        """Read a group after its opening parenthesis."""
        flag = FLAG_I.match(self.text, self.position)
        opening, is_look = "(?:", False
        if flag:
            self.position = flag.end()
            if flag[1] == ")":
                body, least = self.alternatives(depth + 1)
                return f"(?i:{body})", least
            opening = "(?i:"
        elif self.peek("?:"):
            pass
        elif self.peek("?>"):
            opening = "(?>"
        elif self.peek("?="):
            opening, is_look = "(?=", True
        elif self.peek("?!"):
            opening, is_look = "(?!", True
        elif self.text.startswith("?", self.position):
            kind = self.text[self.position - 1 : self.position + 3]
            raise ExpressionError(f'has "{kind}", which the app reads in another way')
        body, least = self.alternatives(depth + 1)
        if not self.peek(")"):
            raise ExpressionError('has a "(" without ")"')
        return f"{opening}{body})", 0 if is_look else least

    def repeated(self, atom: str, width: int) -> tuple[str, int]:
        """Read how often an atom is repeated."""
        while True:
            interval = REPEATS.match(self.text, self.position)
            if interval and (interval[1] or interval[3]):
                self.position = interval.end()
                low = int(interval[1] or 0)
                high = interval[3] if interval[2] else interval[1]
                if high and int(high) < low:
                    raise ExpressionError(f'has "{interval[0]}"')
                bounds = f"{{{low}}}" if high == str(low) else f"{{{low},{high}}}"
                lazy = "?" if self.peek("?") else ""
                # `{1,3}+` is a repeated `{1,3}` in Ruby and a possessive one in ICU.
                atom, width = f"(?:{atom}{bounds}{lazy})", min(width * low, MANY)
                continue
            character = self.text[self.position : self.position + 1]
            if not character or character not in "*+?":
                return atom, width
            self.position += 1
            suffix = "?" if self.peek("?") else "+" if self.peek("+") else ""
            atom = f"{atom}{character}{suffix}"
            width = width if character == "+" else 0
            following = self.text[self.position : self.position + 1]
            if (following and following in "*+?") or REPEATS.match(self.text, self.position):
                atom = f"(?:{atom})"

    def escape(self, *, inside: bool) -> tuple[str, int]:
        """Read what follows a backslash. inside: in a set."""
        number = NUMBER.match(self.text, self.position)
        if number:
            self.position = number.end()
            value = int(next(filter(None, number.groups())), 16)
            if value > sys.maxunicode or value in SURROGATES:
                raise ExpressionError(f'has "\\{number[0]}", which is no character')
            return self.literal(chr(value)), 1
        character = self.next()
        if character in SAME_ESCAPES and character:
            return "\\" + character, 1
        if character == "w":
            return WORD if inside else f"[{WORD}]", 1
        if character == "W" and not inside:
            return f"[^{WORD}]", 1
        if character in {"p", "P"}:
            return self.named(character), 1
        if character and not character.isalnum():
            return self.literal(character), 1
        raise ExpressionError(f'has "\\{character}", which the app reads in another way')

    @staticmethod
    def literal(character: str) -> str:
        """Write one character so that it has no other meaning, in a set and outside."""
        return "\\" + character if character in INSIDE else character

    def named(self, kind: str) -> str:
        """Read the name of a set of characters, such as {Lu}."""
        match = re.compile(r"\{(\^?)([A-Za-z_]{1,40})\}").match(self.text, self.position)
        name = match[2] if match else self.text[self.position : self.position + 10]
        if match is None or not (CATEGORIES.fullmatch(name) or name in SCRIPTS):
            raise ExpressionError(
                f'has "\\{kind}{{{name.strip("{}")}}}", which the app may lack'
            )
        self.position = match.end()
        return "\\" + (kind if not match[1] else "pP"["Pp".index(kind)]) + f"{{{name}}}"

    def set(self, depth: int) -> str:
        """Read a set in brackets."""
        if depth > DEEPEST:
            raise ExpressionError(f"has more than {DEEPEST} sets inside each other")
        self.next()
        parts = ["["]
        if self.peek("^"):
            parts.append("^")
        is_first = True
        while True:
            if self.text.startswith("[:", self.position):
                raise ExpressionError('has "[:", which the app reads in another way')
            if self.text.startswith("[", self.position):
                parts.append(self.set(depth + 1))
            elif self.peek("&&"):
                parts.append("&&")
            else:
                character = self.next()
                if not character:
                    raise ExpressionError('has a "[" without "]"')
                if character == "]" and not is_first:
                    return "".join([*parts, "]"])
                if character == "\\":
                    parts.append(self.escape(inside=True)[0])
                elif character == "-":
                    parts.append(self.hyphen(is_first=is_first))
                else:
                    parts.append(self.literal(character))
            is_first = False

    def hyphen(self, *, is_first: bool) -> str:
        """Return a hyphen in a set: a range between two characters, or itself."""
        ends = is_first or self.text.startswith("]", self.position)
        return "\\-" if ends else "-"


def portable(expression: str) -> str:
    """Return an expression that Oniguruma and ICU read alike.

    Raises ExpressionError: it has a construct that they read in different ways, or the app
    would search forever because it matches the empty text.
    """
    if len(expression) > LONGEST:
        raise ExpressionError(f"is longer than {LONGEST:,} characters")
    return Reader(expression).rewritten()


def quoted(text: str) -> str:
    """Return an expression that matches a text."""
    return "".join(map(Reader.literal, text))


def isolating(expression: str, behavior: str) -> str | None:
    """Return the expression whose isolated matches give the pieces of another behavior.

    None: no expression does. The second part matches the rest of the text at once, so that a
    text without a match takes linear time.
    """
    other = f"(?:(?!{expression})[\\s\\S])"
    return {
        "Isolated": expression,
        "Contiguous": f"(?:{expression})+",
        "MergedWithPrevious": f"{other}*+(?:{expression})|{other}++",
        "MergedWithNext": f"(?:{expression}){other}*+|{other}++",
    }.get(behavior)
