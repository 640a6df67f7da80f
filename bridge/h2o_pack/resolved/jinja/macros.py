"""Macros that do in both template engines what Python does."""

SPACES = (
    " \\t\\n\\v\\r\\f\\r\\n\x1c\x1d\x1e\x1f\u00a0\u1680\u2000\u2001\u2002\u2003\u2004"
    "\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)
"""The characters that Python strips, without those that swift-jinja cannot read.

In Swift, a carriage return with a line end is one character.
"""


def one_line(*lines: str) -> str:
    """Join the tags of a macro; their ends are on lines of their own."""
    return "".join(lines).replace(" %}", "\n%}")


def escaped(value: str, *pairs: tuple[str, str]) -> str:
    """Write a text with other parts."""
    return value + "".join(f' | replace("{old}", "{new}")' for old, new in pairs)


QUOTED = escaped(
    "h2o_value", ("\\\\", "\\\\\\\\"), ("\\n", "\\\\n"), ("\\r", "\\\\r"), ("\\t", "\\\\t")
)
"""A text as Python prints it in a list, but for characters that are not visible."""
SLASH = "h2o-slash-5f1c"
"""A text in place of a slash, which swift-jinja's tojson would escape."""

NESTED_VALUES = 24
"""Lists and dictionaries inside each other that the macros here write."""


def too_deep(limit: int) -> str:
    """Write the end of a macro that is called inside itself too often.

    A thread of the app has a stack of 512 KiB, and a call takes some 4 KiB for each block that
    it is in (measured with swift-jinja 2.4.2 on Linux). A stack that is full ends the app.
    """
    return (
        f"{{% if (h2o_depth > {limit}) %}}"
        '{{ raise_exception("A macro calls itself too often.") }}{% endif %}'
    ).replace(" %}", "\n%}")


INNER = (
    "h2o_comma, h2o_colon, (h2o_pad ~ h2o_step), h2o_step, h2o_ascii, h2o_order, "
    "(h2o_depth + 1)"
)
"""The options of JSON inside JSON."""
MACROS = {
    "h2o_json": one_line(
        "{% macro h2o_json(h2o_value, h2o_comma, h2o_colon, h2o_pad, h2o_step, h2o_ascii, "
        "h2o_order, h2o_depth) %}",
        too_deep(NESTED_VALUES),
        "{% if (h2o_value is string) %}",
        "{{ h2o_json_text(h2o_value, h2o_ascii) }}",
        "{% endif %}{% if (h2o_value is mapping) %}",
        '{{ "{" }}{% for h2o_key in (h2o_value.keys() | sort(false, true) if h2o_order '
        "else h2o_value.keys() | list) %}",
        "{{ (h2o_pad if loop.first else (h2o_comma ~ h2o_pad)) }}{{ h2o_step }}",
        "{{ h2o_json_text(h2o_text(h2o_key), h2o_ascii) }}{{ h2o_colon }}",
        f"{{{{ h2o_json(h2o_value[h2o_key], {INNER}) }}}}",
        '{% endfor %}{{ ((h2o_pad ~ "}") if h2o_value else "}") }}{% endif %}',
        "{% if ((h2o_value is sequence) and (not (h2o_value is string)) and "
        "(not (h2o_value is mapping)) and (not (h2o_value is undefined))) %}",
        "[{% for h2o_item in h2o_value %}",
        "{{ (h2o_pad if loop.first else (h2o_comma ~ h2o_pad)) }}{{ h2o_step }}",
        f"{{{{ h2o_json(h2o_item, {INNER}) }}}}",
        '{% endfor %}{{ ((h2o_pad ~ "]") if h2o_value else "]") }}{% endif %}',
        "{% if (h2o_value is none) %}null",
        '{% elif (h2o_value is boolean) %}{{ ("true" if h2o_value else "false") }}',
        "{% elif (h2o_value is number) %}{{ h2o_value }}",
        "{% elif ((h2o_value is undefined) or (h2o_value is callable)) %}",
        '{{ raise_exception("A value cannot be written as JSON.") }}{% endif %}{% endmacro %}',
    ),
    "h2o_json_text": one_line(
        "{% macro h2o_json_text(h2o_value, h2o_ascii) %}",
        f'{{{{ (h2o_value | replace("/", "{SLASH}") | tojson(ensure_ascii=h2o_ascii) '
        f'| replace("{SLASH}", "/") '
        '| replace("\x7f", "\\\\u007f" if h2o_ascii else "\x7f")) }}{% endmacro %}',
    ),
    "h2o_join": one_line(
        "{% macro h2o_join(h2o_value, h2o_between) %}{% for h2o_item in h2o_value %}",
        "{% if (not loop.first) %}{{ h2o_between }}{% endif %}{{ h2o_text(h2o_item) }}",
        "{% endfor %}{% endmacro %}",
    ),
    "h2o_text": one_line(
        "{% macro h2o_text(h2o_value) %}",
        "{% if ((h2o_value is string) or (h2o_value is undefined)) %}{{ h2o_value }}",
        "{% else %}{{ h2o_shown(h2o_value, 0) }}{% endif %}{% endmacro %}",
    ),
    "h2o_shown": one_line(
        "{% macro h2o_shown(h2o_value, h2o_depth) %}",
        too_deep(NESTED_VALUES),
        "{% if (h2o_value is string) %}{{ h2o_quoted(h2o_value) }}{% endif %}",
        '{% if (h2o_value is mapping) %}{{ "{" }}',
        "{% for h2o_key in (h2o_value.keys() | list) %}",
        '{{ ("" if loop.first else ", ") }}{{ h2o_shown(h2o_key, (h2o_depth + 1)) }}{{ ": " }}',
        "{{ h2o_shown(h2o_value[h2o_key], (h2o_depth + 1)) }}",
        '{% endfor %}{{ "}" }}{% endif %}',
        "{% if ((h2o_value is sequence) and (not (h2o_value is string)) and "
        "(not (h2o_value is mapping)) and (not (h2o_value is undefined))) %}",
        "[{% for h2o_item in h2o_value %}",
        '{{ ("" if loop.first else ", ") }}{{ h2o_shown(h2o_item, (h2o_depth + 1)) }}',
        "{% endfor %}]{% endif %}",
        "{% if (h2o_value is none) %}None",
        '{% elif (h2o_value is boolean) %}{{ ("True" if h2o_value else "False") }}',
        "{% elif (h2o_value is number) %}{{ h2o_value }}{% endif %}{% endmacro %}",
    ),
    "h2o_quoted": one_line(
        "{% macro h2o_quoted(h2o_value) %}",
        f"{{% set h2o_value = ({QUOTED}) %}}",
        """{% if (("'" in h2o_value) and ('"' not in h2o_value)) %}""",
        """{{ ('"' ~ h2o_value ~ '"') }}{% else %}""",
        """{{ ("'" ~ (h2o_value | replace("'", "\\\\'")) ~ "'") }}{% endif %}{% endmacro %}""",
    ),
    "h2o_title": one_line(
        "{% macro h2o_title(h2o_value) %}{% set h2o_start = namespace(here=true) %}",
        "{% for h2o_letter in h2o_value %}",
        "{{ ((h2o_letter | upper) if h2o_start.here else (h2o_letter | lower)) }}",
        "{% set h2o_start.here = ((h2o_letter | upper) == (h2o_letter | lower)) %}",
        "{% endfor %}{% endmacro %}",
    ),
    "h2o_words": one_line(
        "{% macro h2o_words(h2o_value) %}{% set h2o_start = namespace(here=true) %}",
        "{% for h2o_letter in h2o_value %}",
        "{{ ((h2o_letter | upper) if h2o_start.here else (h2o_letter | lower)) }}",
        '{% set h2o_start.here = (h2o_letter in ("-({[<" ~ h2o_spaces)) %}',
        "{% endfor %}{% endmacro %}",
    ),
    "h2o_spaced": one_line(
        "{% macro h2o_spaced(h2o_value) %}{% for h2o_letter in h2o_value %}",
        '{{ (" " if (h2o_letter in h2o_spaces) else h2o_letter) }}',
        "{% endfor %}{% endmacro %}",
    ),
    "h2o_spaces": f'{{% set h2o_spaces = "{SPACES}"\n%}}',
}
"""By name. A macro calls only those that stand after it."""
