# ruff: noqa: E501 - templates are read as they are
"""The canonical text of a chat template, in which Jinja2 and the app's engine read the same."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import Environment

from h2o_pack import assets
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.models import trial
from h2o_pack.models.texts import renderings, sandbox
from h2o_pack.resolved.template import (
    CONVERSATIONS,
    KEYS,
    LONGEST,
    SHOWN,
    canonical_template,
    conversations,
    in_order,
    prove,
)
from tests.messages import refused, says

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
)

PIECES = (
    *(
        "a",
        "{{ 'b' }}",
        "{{- 'c' -}}",
        "{% if b %}d{% endif %}",
        "{%- if b -%} e {%- endif -%}",
    ),
    *(
        "{# f #}",
        "{#- g -#}",
        "{%+ if b %}h{%+ endif %}",
        "{% raw %} {{ i }} {% endraw %}",
        "}}",
    ),
)
SPACE = ("", " ", "\n", "\n\n", "  \n  ", "\t", "\r\n", " x\n ")

PLAIN = Environment(keep_trailing_newline=True)  # noqa: S701 - as in chat templates
"""An environment that trims nothing."""


def chats() -> list[dict[str, Any]]:
    """Return the variables of all conversations."""
    return [
        {
            "messages": chat.messages,
            "tools": chat.tools,
            "add_generation_prompt": chat.prompt,
            **chat.variables,
        }
        for chat in conversations()
    ]


def rendered(source: str) -> list[dict[str, str | None]]:
    return renderings(source, SPECIAL, chats())


def canonical(source: str) -> str:
    return canonical_template(source, "chat_template.jinja")


def loop(body: str) -> str:
    """Return a template that writes each message of a chat."""
    return f"{{% for m in messages %}}{body}{{% endfor %}}"


TRIMMED = ("{%-", "{{-", "-%}", "-}}", "%}\n", "#}\n", "\r")
"""What engines trim, or replace, in ways of their own."""
CONSTRUCTS = {
    # Text, tags and what stands around them
    "text": "Hello\n\nyou {{ bos_token }}\n",
    "line ends": "a\r\n{% if true %}\r\nb\rc{% endif %}\r\nd\r\n",
    "trims": "  {% if true %}\n  a  \n  {%- if true -%}  \n b {%+ endif +%}\n {% endif %} c\n",
    "dashes at values": " a {{- ' b ' -}} c {{ 'd' -}}\n e",
    "comments": "a {# b #}\nc {#- d -#} e\n   {# f\n g #}  \nh {# {{ x }} {% y %} #}i",
    "raw blocks": "{% raw %}{{ a }} {% b %} {# c #}{% endraw %}{%- raw -%} {{- d -}} {% endraw %}",
    "marks in text": "a }} b %} c #} { { d {{ '{{ e }} {% f %} {# g #}' }}",
    "marks in strings": loop("{{ '{%- a -%} {{- b -}} }}' ~ m.content ~ \"%}\\n#}\\n\" }}"),
    "quotes": """{{ 'it\\'s "a"' }}{{ "it's \\"b\\"" }}{{ '\\\\ \\n \\t \\x41 \\u00e9 \\\\n' }}""",
    "joined strings": "{{ 'a' 'b' \"c\" }}",
    "other characters": "é 東京 👩‍🚀 {{ 'हिन्दी' }} \u001f{{ '\u200b\u00a0' }}",
    "spaces alone": "{% if true %}   {% endif %}\n\n {{ 'a' }}  \n\n",
    "training marks": loop("{% generation %}{{ m.content }}\n{% endgeneration %}\n"),
    # Statements
    "conditions": loop(
        "{% if m.role == 'user' %}a{% elif m.role == 'system' %}b{% else %}c{% endif %}"
    ),
    "loops": loop(
        "{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}"
        "{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.cycle('a', 'b') }}"
        "{{ (loop.previtem or {}).role }}{{ loop.nextitem.role if not loop.last }}"
    ),
    "loops over nothing": "{% for t in tools or [] %}{{ t }}{% else %}none{% endfor %}"
    + loop("{% for c in m.tool_calls %}{{ c.id }}{% else %}-{% endfor %}"),
    "loops with a condition": (
        "{% for m in messages if m.role == 'user' %}{{ m.content }};{% endfor %}"
    ),
    "loops with a condition and numbers": (
        "{% for m in messages if m.role != 'user' %}{{ loop.index }}{{ loop.last }}"
        "{% else %}none{% endfor %}"
    ),
    "loops over pairs": "{% for t in tools or [] %}{% for k, v in t.function.items() %}{{ k }}={{ v }};"
    "{% endfor %}{% for k, v in t.function|items %}{{ k }}{% endfor %}{% endfor %}",
    "loops over keys": "{% for t in tools or [] %}{% for k in t.function %}{{ k }};"
    "{% endfor %}{{ t.function.keys()|list|length }}{% endfor %}",
    "loops that end early": loop(
        "{% if loop.index == 3 %}{% break %}{% endif %}{% if m.role == 'system' %}"
        "{% continue %}{% endif %}{{ m.content }}"
    ),
    "variables in loops": "{% set x = 'a' %}"
    + loop("{{ x }}{% if m.role == 'user' %}{% set x = 'b' %}{% endif %}{{ x }}")
    + "{{ x }}",
    "variables of a step": loop(
        "{% if loop.first %}{% set y = 1 %}{% endif %}{{ y is defined }}{{ y }}"
        "{% for n in messages %}{{ y }}{% if loop.last %}{% set y = 2 %}{% endif %}{% endfor %}"
    )
    + loop("{{ y }}{% set y = 3 %}{{ y }}"),
    "options in loops": loop(
        "{% if enable_thinking is undefined %}{% set enable_thinking = 5 %}{% endif %}"
        "{{ enable_thinking }}"
    ),
    "several variables": "{% set a, b = 1, 'c' %}{% set b, a = a, b %}{{ a }}{{ b }}",
    "variables of a block": "{% set x %}a{% set y = 2 %}{{ y }}{% endset %}{{ x }}{{ y }}"
    "{% set z | upper | replace('A', 'b') %}a{% endset %}{{ z }}",
    "namespaces": "{% set ns = namespace(a='x', n=0) %}"
    + loop(
        "{% set ns.n = ns.n + 1 %}{% if m.role == 'user' %}{% set ns.a = m.content %}{% endif %}"
    )
    + "{{ ns.n }}{{ ns.a }}{% set ns.b %}c{% endset %}{{ ns.b }}{{ ns.c is defined }}",
    "macros": "{% macro f(a, b='-', c=none) %}{{ a }}{{ b }}{{ c }}{{ d }}{% endmacro %}"
    "{% set d = 1 %}{{ f(1) }}{{ f('x', c='y') }}{{ f(b=2, a=3) }}{{ f() }}",
    "macros and the variables of callers": "{% macro f(a) %}{{ a }}{{ m }}{{ x }}{% endmacro %}"
    + loop("{% set x = loop.index %}{{ f(x) }}"),
    "macros with variables": "{% macro f(n) %}{% if n > 1 %}{% set y = n %}{% endif %}{{ y }}"
    "{% if n > 0 %}{{ f(n - 1) }}{% endif %}{{ y }}{% endmacro %}{{ f(3) }}",
    "macros that call each other": "{% macro f(v) %}{% if v is mapping %}{% for k, w in v.items() %}"
    "{{ k }}:{{ g(w) }},{% endfor %}{% else %}{{ v }}{% endif %}{% endmacro %}"
    "{% macro g(v) %}[{{ f(v) }}]{% endmacro %}{% for t in tools or [] %}{{ f(t) }}{% endfor %}",
    "blocks for macros": "{% macro f(a) %}<{{ a }}>{{ caller() }}</{{ a }}>{% endmacro %}"
    "{% call f('b') %}text {{ bos_token }}{% endcall %}"
    "{% macro g() %}{{ caller(1, 'x') }}{% endmacro %}{% call(n, s) g() %}{{ n }}{{ s }}{% endcall %}",
    "blocks with filters": "{% filter upper %}a{{ bos_token }}{% endfilter %}"
    "{% filter replace('a', 'b') | trim %} a {% endfilter %}",
    "with blocks": "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}"
    "{{ a }}{{ b }}{{ c }}",
    # Values and operators
    "printed values": "{{ none }}{{ true }}{{ 1.0 }}{{ -2 }}{{ [1, 'a', none, true] }}{{ {'a': 'b'} }}"
    "{{ x }}{{ ['it\\'s', '\"', '\\n'] }}{{ tools }}",
    "joined values": loop("{{ m.role ~ 1 ~ none ~ true ~ x ~ [1] }}{{ 1 ~ 2 }}{{ x ~ y }}"),
    "numbers": "{{ 7 // 2 }}{{ -7 // 2 }}{{ 7 % 3 }}{{ -7 % 3 }}{{ 7 / 2 }}{{ 2 * 3 - 1 }}{{ - 3 + 1 }}"
    "{{ 1 + 2 * 3 }}{{ (1 + 2) * 3 }}{{ 1.5 + 1 }}{{ 10 - 2 - 3 }}",
    "repeated texts": "{{ 'ab' * 2 }}[{{ 'ab' * -1 }}]{{ '-' * (3 - 5) }}{{ 2 * 'a' }}",
    "comparisons": "{{ 1 < 2 < 3 }}{{ 1 < 3 > 2 == 2 }}{{ 1 == 1.0 }}{{ 'a' < 'b' }}{{ not 1 == 2 }}"
    "{{ 'a' in 'abc' }}{{ 'a' not in ['a'] }}{{ 1 in [1, 2] }}{{ 'a' in {'a': 1} }}{{ none == none }}",
    "choices": "{{ 'a' if true }}{{ 'b' if false }}{{ 'c' if x else 'd' if y else 'e' }}"
    "{{ ('a' if x else 'b') ~ 'c' }}{{ x or 'f' }}{{ 'g' and 'h' }}{{ not x and not y }}",
    "precedence": "{{ 'a' ~ 'b' | upper }}{{ -3 | abs }}{{ 1 + 2 | int }}{{ not true or true }}"
    "{{ 'a' + 'b' ~ 'c' * 2 }}{{ 2 * 3 | string | length }}{{ 'x' is defined and true }}",
    "lists": "{% set a = [1, 2] + [3] %}{{ a[0] }}{{ a[-1] }}{{ a[9] }}{{ a[1:] }}{{ a[:1] }}{{ a[::-1] }}"
    "{{ a[-5:2] }}{{ a[0:3:2] }}{{ (1, 2)[1] }}{{ (1,) | length }}{{ 'abcdef'[1:-2] }}{{ 'abc'[0] }}",
    "dictionaries": "{% set d = {'b': 1, 'a': {'c': [2]}, 512: 'n', 'items': 3} %}{{ d.b }}{{ d['a'].c[0] }}"
    "{{ d[512] }}{{ d.get('z') }}{{ d.get('z', 4) }}{{ d['items'] }}{{ d.keys() | list }}"
    "{{ d.values() | list | length }}{{ d }}{{ dict(z=1, a=2) }}{{ {} }}",
    "names that are tags": "{% set filter = 1 %}{% set call = 2 %}{{ filter }}{{ call }}{{ null is defined }}"
    + loop("{{ m.call }}{{ m.filter is defined }}"),
    "tests": loop(
        "{{ m is mapping }}{{ m.content is string }}{{ x is defined }}{{ m.x is undefined }}{{ none is none }}"
        "{{ true is boolean }}{{ 1 is number }}{{ true is number }}{{ 1 is integer }}{{ 1.5 is float }}"
        "{{ [] is sequence }}{{ {} is sequence }}{{ 'a' is iterable }}{{ x is iterable }}{{ 4 is even }}"
        "{{ 3 is odd }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(2) }}{{ true is true }}"
        "{{ 0 is false }}{{ 1 is eq 1 }}{{ 1 is ne(2) }}{{ 1 is gt 0 }}{{ 'a' is in 'ab' }}"
        "{{ none is sameas none }}{{ x is not defined }}{{ m.content is not none }}"
    ),
    # Methods
    "strip": loop(
        "[{{ m.content.strip() }}][{{ m.content.lstrip() }}][{{ m.content.rstrip() }}]"
        "[{{ m.content.strip('\\n') }}][{{ m.content.strip('Hadeo ') }}][{{ m.content | trim }}]"
        "[{{ m.content | trim('Ho') }}]"
    ),
    "split": loop(
        "{{ m.content.split() | join(',') }}{{ m.content.split(' ') | join(',') }}{{ m.content.split('o', 1)[1] }}"
        "{{ m.content.split('\\n') | join(',') }}{{ m.content.split('o', maxsplit=2)[-1] }}"
        "{{ m.content.split(sep='t') | first }}{{ m.content.split('</think>')[-1].lstrip('\\n') }}"
    ),
    "rsplit": loop(
        "{{ m.content.rsplit('o', 1) | join('+') }}{{ m.content.rsplit('t', 1)[-1] }}{{ m.content.rsplit(' ') | last }}"
    ),
    "beginnings and ends": loop(
        "{{ m.content.startswith('H') }}{{ m.content.endswith('?') }}{{ m.content.removeprefix('Hel') }}"
        "{{ m.content.removesuffix('lo') }}{{ 'aaa'.removesuffix('aa') }}{{ m.content.find('l') >= 0 }}{{ 'abcbc'.find('bc') }}"
        "{{ m.content.rfind('l') < 1 }}{{ 'abcbc'.rfind('bc') }}{{ m.content.count('o') }}"
    ),
    "letters": loop(
        "{{ m.role.upper() }}{{ m.role | upper }}{{ m.role | capitalize }}{{ m.role.capitalize() }}"
        "{{ 'the quick-brown (fox)' | title }}{{ \"it's a b2b\".title() }}{{ m.role.title() }}{{ none | upper }}"
    ),
    "digits": "{{ '12'.isdigit() }}{{ ''.isdigit() }}{{ '1a'.isdigit() }}{{ ' \\n'.isspace() }}{{ ''.isspace() }}",
    "replace": loop(
        "{{ m.content.replace('o', '0') }}{{ m.content | replace('t', 'T') }}{{ m.content.replace('l', '', 1) }}"
        "{{ m.content | replace('o', 'u', 1) }}{{ 5 | replace(5, 6) }}"
    ),
    "join": "{{ ['a', 1, none] | join(', ') }}{{ ', '.join(['a', 'b']) }}{{ messages | join('-', attribute='role') }}"
    "{{ 'abc' | join('.') }}{{ {'a': 1} | join }}",
    # Filters
    "default": loop(
        "{{ x | default('a') }}{{ x | d('b') }}{{ none | default('c') }}{{ '' | default('d', true) }}"
        "{{ none | default('e', boolean=true) }}{{ m.x | default(m.role) }}{{ x | default }}"
    ),
    "first and last": "{{ [1, 2] | first }}{{ [1, 2] | last }}{{ [] | first }}{{ 'ab' | last }}"
    "{{ (messages | first).role }}{{ x | first }}",
    "order": "{{ [3, 1, 2] | sort }}{{ ['b', 'A', 'a'] | sort }}{{ ['b', 'A', 'a'] | sort(reverse=true) }}"
    "{{ ['b', 'A'] | sort(case_sensitive=true) }}{{ [1, 2] | reverse | list }}{{ {'b': 1, 'a': 2} | sort }}"
    "{% for k, v in {'b': 1, 'A': 2, 'c': 0} | dictsort %}{{ k }}{{ v }}{% endfor %}{% for k, v in {'b': 1, 'a': 2} | dictsort(reverse=true) %}{{ k }}{% endfor %}"
    "{% for m in messages | reverse %}{{ m.role }}{% endfor %}"
    "{% for m in messages | sort(attribute='role') %}{{ m.content }}{% endfor %}",
    "chosen elements": "{% for m in messages | selectattr('role', 'equalto', 'user') %}{{ m.content }}{% endfor %}"
    "{{ messages | rejectattr('role', 'in', ['user', 'system']) | list | length }}"
    "{{ messages | selectattr('tool_calls') | list | length }}{{ [1, 0, none, 2] | select | list }}"
    "{{ messages | selectattr('tool_calls', 'defined') | map(attribute='role') | join(',') }}"
    "{{ [1, 2, 3] | reject('odd') | list }}{{ [1, 2] | select('in', [2]) | first }}"
    "{% if messages | selectattr('role', 'equalto', 'nobody') %}always{% endif %}",
    "mapped elements": "{{ messages | map(attribute='role') | list }}{{ ['a'] | map('upper') | join }}"
    "{{ messages | map(attribute='x', default='-') | join(',') }}{{ (tools or []) | map(attribute='function.name') | join(', ') }}"
    "{{ ['a ', ' b'] | map('trim') | list }}{{ ['ab'] | map('replace', 'a', 'c') | list }}"
    "{% if tools and tools | map(attribute='type') | list %}t{% endif %}",
    "numbers from filters": "{{ [1, 5, 3] | max }}{{ [1, 5, 3] | min }}{{ [1, 2] | sum }}{{ '7' | int + 1 }}"
    "{{ 'x' | int(3) }}{{ 3.7 | int }}{{ messages | length }}{{ messages | count }}{{ '' | length }}",
    "unique": "{{ ['a', 'A', 'b', 'a'] | unique | list }}",
    "indent": loop(
        "{{ m.content | indent }}{{ m.content | indent(2, first=true) }}{{ m.content | indent(width=3, blank=true) }}"
    ),
    "string": loop(
        "{{ m.content | string }}{{ 5 | string + 'a' }}{{ none | string }}{{ m.tool_calls | string }}"
    ),
    "list": "{{ 'abc' | list }}{{ {'a': 1} | list }}{{ [1] | list }}{{ range(3) | list }}{{ range(1, 7, 2) | list }}",
    "safe": loop("{{ m.content | safe }}{{ '<'|safe + m.content }}{{ m.content | e }}"),
    "JSON": "{{ tools | tojson }}{{ messages | tojson }}{{ 'é/\"\\n' | tojson }}{{ 1.0 | tojson }}{{ none | tojson }}"
    "{{ true | tojson }}{{ [] | tojson }}{{ {} | tojson }}{{ {'a': []} | tojson }}",
    "JSON with options": "{{ tools | tojson(indent=2) }}{{ messages | tojson(ensure_ascii=true) }}"
    "{{ tools | tojson(indent=4, ensure_ascii=False) }}{{ messages | tojson(separators=(',', ':')) }}"
    "{{ tools | tojson(sort_keys=true) }}{{ [1, {'a': {}}] | tojson(indent='\t') }}{{ [] | tojson(indent=1) }}",
    "JSON of nothing": loop("{{ m.x | tojson }}"),
    "JSON of tools": loop(
        "{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}"
    ),
    "tools that are not there": "{% if tools is not none %}tools{% endif %}{% if documents is none %}d{% endif %}",
    "errors": loop(
        "{% if m.role == 'tool' %}{{ raise_exception('no ' ~ m.role) }}{% endif %}{{ m.content }}"
    ),
    "dates": "{{ strftime_now('%d %B %Y') }}{% if strftime_now is defined %}{{ strftime_now('%Y-%m-%d') }}{% endif %}",
    "macros that never end are not rendered": "{% macro f(a) %}{{ f(a) }}{% endmacro %}"
    + loop("{% if m.role == 'system' %}{{ f(1) }}{% endif %}{{ m.content }}"),
    "unknown filters that are not reached": "{% if x is defined %}{{ x | from_json }}{% endif %}a",
    "changes that the sandbox forbids": "{% set a = [] %}"
    + loop("{% if m.role == 'tool' %}{% set _ = a.append(m) %}{% endif %}")
    + "{{ a }}",
}


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_the_canonical_text_renders_what_the_template_renders(name):
    source, text = CONSTRUCTS[name], canonical(CONSTRUCTS[name])
    assert not any(mark in text for mark in TRIMMED)
    before, after = rendered(source), rendered(text)
    served = [chat for chat in before if chat["text"] is not None]
    assert served or name == "JSON of nothing"
    for chat, first, second in zip(conversations(), before, after, strict=True):
        assert first["text"] == second["text"], chat.name


REFUSED = {
    "recursive loops": "{% for m in messages recursive %}{{ loop(m) }}{% endfor %}",
    "loop.depth": loop("{{ loop.depth }}"),
    "unknown methods": loop("{{ m.content.zfill(3) }}"),
    "unknown filters": loop("{{ m.content | wordwrap(3) }}"),
    "other tests": loop("{{ m.content is lower }}"),
    "computed keys": "{{ {bos_token: 1} }}",
    "texts as formats": "{{ '%s' % bos_token }}",
    "powers": "{{ 2 ** 70 }}",
    "large numbers": "{{ 9223372036854775808 }}",
    "dates in other forms": "a\n{{ strftime_now('%-d') }}",
    "unpacked arguments": "{% macro f() %}{% endmacro %}{{ f(*messages) }}",
    "other arguments of macros": "{% macro f() %}{{ varargs }}{% endmacro %}{{ f() }}",
    "macros as values": "{% macro f() %}{% endmacro %}{% set g = f %}{{ g() }}",
    "macros with one name": "{% macro f() %}1{% endmacro %}{% macro f() %}2{% endmacro %}",
    "lazy values that are read twice": "{% set a = messages | map(attribute='role') %}{{ a | list }}{{ a | list }}",
    "characters that join": "a{{ bos_token }}\u0301b",
    "line separators": "a\u2028b",
    "other files": "{% include 'a' %}",
    "namespaces with names of methods": "{% set ns = namespace(items=[]) %}",
}


def test_what_the_app_cannot_reproduce_is_refused_by_its_name_and_line():
    for source in REFUSED.values():
        says(refused(canonical, source, code=ExitCode.MODEL))


def test_a_template_that_cannot_be_parsed_or_is_too_large_or_too_deep_is_refused():
    deep = "(" * 70 + "1" + " + 1 - 1)" * 70
    for source in (
        "a\n{% if %}",
        "a" * (LONGEST + 1),
        f"{{{{ {deep} }}}}",
        "{{ " + "-" * 5000 + "1 }}",
    ):
        says(refused(canonical, source, code=ExitCode.MODEL))


def test_a_proven_template_says_which_conversations_it_serves():
    source = loop(
        "{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ m.content }}"
    )
    served = prove(source, canonical(source), SPECIAL, "a")
    assert [shown for shown in SHOWN if served.serves(shown)] == [
        *("plain", "turns", "thoughts", "tools", "tool results"),
    ]
    assert served.unserved["system"] == "no system"


def test_another_text_of_a_template_is_refused_at_its_first_difference():
    with pytest.raises(UserError) as error:
        prove(
            CHATML,
            canonical(CHATML).replace("im_end", "im_End"),
            SPECIAL,
            "chat_template.jinja",
        )
    says(error.value)


def test_a_template_that_serves_no_plain_conversation_is_refused():
    source = "{{ raise_exception('never') }}"
    says(refused(prove, source, source, SPECIAL, "a", code=ExitCode.MODEL))


def test_endless_and_long_templates_end_at_a_limit(monkeypatch):
    loops = "{% for a in range(99999) %}" * 3 + "{% endfor %}" * 3
    long = "{{ 'a' * 4000000 }}{{ 'a' * 4000000 }}"
    refused(prove, long, long, SPECIAL, "a", code=ExitCode.MODEL)
    monkeypatch.setattr(trial, "SECONDS", 0.3)
    refused(prove, loops, loops, SPECIAL, "a", code=ExitCode.MODEL)


def test_options_of_json_are_those_of_transformers():
    text = rendered(
        "{{ {'b': 'é', 'a': 1} | tojson(ensure_ascii=True, separators=(',', ':'), sort_keys=True) }}"
    )
    assert text[0]["text"] == '{"a":1,"b":"\\u00e9"}'


def test_conversations_have_their_keys_in_the_order_of_the_app():
    rows = json.loads(CONVERSATIONS.read_text("utf-8"))
    for row in rows:
        for key in ("messages", "tools"):
            assert json.dumps(in_order(row.get(key))) == json.dumps(row.get(key)), row["name"]


@given(st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(SPACE)), max_size=8))
@settings(max_examples=60, deadline=None)
def test_any_trims_and_spaces_are_resolved(pieces):
    source = "".join(space + piece for piece, space in pieces)
    text = canonical(source)
    before = sandbox().from_string(source).render(b=True)
    assert sandbox().from_string(text).render(b=True) == before
    assert PLAIN.from_string(text).render(b=True) == before


@given(st.text(max_size=30))
@settings(max_examples=100, deadline=None)
def test_any_text_is_written_as_it_is_or_refused(text):
    try:
        written = canonical(f"{{{{ {json.dumps(text, ensure_ascii=False)} }}}}")
    except UserError:
        return
    assert PLAIN.from_string(written).render() == text


def test_the_app_gives_keys_the_same_order():
    path = "swift_templates/upstream/h2o-tokenizers/FolderTokenizer.swift"
    text = (assets.root() / path).read_text("utf-8")
    block = text.partition("static let first = [")[2].partition("]")[0]
    assert tuple(re.findall(r'"(\w+)"', block)) == KEYS
