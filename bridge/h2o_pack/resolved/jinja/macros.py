"""Macros that do in both template engines what Python does."""

SPACES = (
    " \\t\\n\\r\\v\\f\x1c\x1d\x1e\x1f\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006"
    "\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)
"""The characters that Python strips, without those that swift-jinja cannot read."""
CONTROLS = "".join(map(chr, (*range(1, 9), *range(14, 32), 127)))


def one_line(*lines: str) -> str:
    """Join the tags of a macro; their ends are on lines of their own."""
    return "".join(lines).replace(" %}", "\n%}")


def escaped(value: str, *pairs: tuple[str, str]) -> str:
    """Write a text with other parts."""
    return value + "".join(f' | replace("{old}", "{new}")' for old, new in pairs)


QUOTED = escaped(
    "h2o_value",
    ("\\\\", "\\\\\\\\"),
    *(("\\n", "\\\\n"), ("\\r", "\\\\r"), ("\\t", "\\\\t")),
    *((letter, f"\\\\x{ord(letter):02x}") for letter in CONTROLS if letter not in "\x0b\x0c"),
    *(("\\v", "\\\\x0b"), ("\\f", "\\\\x0c"), ("\\b", "\\\\x08")),
)
SLASH = "h2o-slash-5f1c"
"""A text in place of a slash, which swift-jinja's tojson would escape."""

MACROS = {
    "h2o_json": one_line(
        "{% macro h2o_json(h2o_value, h2o_comma, h2o_colon, h2o_pad, h2o_step, h2o_ascii, "
        "h2o_order) %}",
        "{% if (h2o_value is undefined) %}",
        '{{ raise_exception("A value for tojson is not there.") }}',
        "{% elif (h2o_value is string) %}",
        f'{{{{ (h2o_value | replace("/", "{SLASH}") | tojson(ensure_ascii=h2o_ascii) '
        f'| replace("{SLASH}", "/")) }}}}',
        "{% elif (h2o_value is none) %}null",
        '{% elif (h2o_value is boolean) %}{{ ("true" if h2o_value else "false") }}',
        "{% elif (h2o_value is mapping) %}",
        '{% if h2o_value %}{{ "{" }}',
        "{% for h2o_key in (h2o_value.keys() | sort(false, true) if h2o_order "
        "else h2o_value.keys() | list) %}",
        "{% if (not loop.first) %}{{ h2o_comma }}{% endif %}{{ (h2o_pad ~ h2o_step) }}",
        "{{ h2o_json((h2o_key if (h2o_key is string) else h2o_text(h2o_key)), h2o_comma, "
        "h2o_colon, h2o_pad, h2o_step, h2o_ascii, h2o_order) }}{{ h2o_colon }}",
        "{{ h2o_json(h2o_value[h2o_key], h2o_comma, h2o_colon, (h2o_pad ~ h2o_step), "
        "h2o_step, h2o_ascii, h2o_order) }}",
        '{% endfor %}{{ (h2o_pad ~ "}") }}{% else %}{{ "{}" }}{% endif %}',
        "{% elif (h2o_value is number) %}{{ h2o_value }}",
        "{% elif (h2o_value is sequence) %}",
        "{% if h2o_value %}[",
        "{% for h2o_item in h2o_value %}",
        "{% if (not loop.first) %}{{ h2o_comma }}{% endif %}{{ (h2o_pad ~ h2o_step) }}",
        "{{ h2o_json(h2o_item, h2o_comma, h2o_colon, (h2o_pad ~ h2o_step), "
        "h2o_step, h2o_ascii, h2o_order) }}",
        '{% endfor %}{{ (h2o_pad ~ "]") }}{% else %}[]{% endif %}',
        '{% else %}{{ raise_exception("A value cannot be written as JSON.") }}{% endif %}'
        "{% endmacro %}",
    ),
    "h2o_join": one_line(
        "{% macro h2o_join(h2o_value, h2o_between) %}{% for h2o_item in h2o_value %}",
        "{% if (not loop.first) %}{{ h2o_between }}{% endif %}{{ h2o_text(h2o_item) }}",
        "{% endfor %}{% endmacro %}",
    ),
    "h2o_text": one_line(
        "{% macro h2o_text(h2o_value) %}",
        "{% if ((h2o_value is string) or (h2o_value is undefined)) %}{{ h2o_value }}",
        "{% else %}{{ h2o_shown(h2o_value) }}{% endif %}{% endmacro %}",
    ),
    "h2o_shown": one_line(
        "{% macro h2o_shown(h2o_value) %}",
        "{% if (h2o_value is string) %}{{ h2o_quoted(h2o_value) }}",
        "{% elif (h2o_value is none) %}None",
        '{% elif (h2o_value is boolean) %}{{ ("True" if h2o_value else "False") }}',
        '{% elif (h2o_value is mapping) %}{{ "{" }}',
        "{% for h2o_key in (h2o_value.keys() | list) %}",
        '{% if (not loop.first) %}{{ ", " }}{% endif %}{{ h2o_shown(h2o_key) }}{{ ": " }}',
        '{{ h2o_shown(h2o_value[h2o_key]) }}{% endfor %}{{ "}" }}',
        "{% elif (h2o_value is number) %}{{ h2o_value }}",
        "{% elif (h2o_value is sequence) %}[{% for h2o_item in h2o_value %}",
        '{% if (not loop.first) %}{{ ", " }}{% endif %}{{ h2o_shown(h2o_item) }}',
        "{% endfor %}]{% else %}{{ h2o_value }}{% endif %}{% endmacro %}",
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
"""By name. A macro needs only those that stand after it."""
NEEDS = {
    "h2o_json": ("h2o_text",),
    "h2o_join": ("h2o_text",),
    "h2o_text": ("h2o_shown",),
    "h2o_shown": ("h2o_quoted",),
    "h2o_quoted": (),
    "h2o_title": (),
    "h2o_words": ("h2o_spaces",),
    "h2o_spaced": ("h2o_spaces",),
    "h2o_spaces": (),
}
