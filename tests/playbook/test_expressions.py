"""Expressions: native types, strict names, no way out of the sandbox."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.playbook.expressions import (
    ExpressionError,
    evaluate,
    expression,
    has_expression,
    render,
    template,
    texts_in,
)

SCOPE: dict[str, Any] = {"n": 3, "host": "host1", "hosts": ["host0", "host1"], "r": {"ok": True}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ n }}", 3),
        ("{{n}}", 3),
        ("{{ -n }}", -3),
        ("{{- n -}}", 3),
        ("  {{ n }} ", 3),
        ("{{ n / 2 }}", 1.5),
        ("{{ hosts }}", ["host0", "host1"]),
        ("{{ r.ok }}", True),
        ("{{ not r.ok }}", False),
        ("{{ none }}", None),
        ("{{ hosts | length }}", 2),
        ("{{ hosts + ['host2'] }}", ["host0", "host1", "host2"]),
        ("{{ 'host3' if n > 2 else 'host4' }}", "host3"),
        ("{{ range(n) | list }}", [0, 1, 2]),
        ("{{ max(n, 7) }}", 7),
        ("{{ host }}.p0", "host1.p0"),
        ("{{ n }}{{ n }}", "33"),
        ("no expression", "no expression"),
    ],
)
def test_values_keep_their_types(text: str, value: object) -> None:
    rendered = render(text, SCOPE)
    assert rendered == value
    assert type(rendered) is type(value)


def test_rendering_goes_to_any_depth() -> None:
    given_ = {"ring": ["{{ host }}", "x"], "n": 1, "deep": {"a": ["{{ n }}"]}}
    assert render(given_, SCOPE) == {"ring": ["host1", "x"], "n": 1, "deep": {"a": [3]}}
    assert [path for path, _ in texts_in(given_)] == [("ring", 0), ("deep", "a", 0)]
    assert has_expression(given_)
    assert not has_expression({"a": ["b", 1]})


def test_conditions_may_be_bare_or_in_braces() -> None:
    assert evaluate("n > 2 and r.ok", SCOPE) is True
    assert evaluate("{{ n > 2 }}", SCOPE) is True
    assert evaluate("{{- -n }}", SCOPE) == -3
    assert evaluate(False, SCOPE) is False


def test_names_and_fields_are_known_before_evaluation() -> None:
    compiled = expression("a.b > c['d'] + y")
    assert compiled.names == {"a", "c", "y"}
    assert compiled.fields == {("a", "b"), ("c", "d")}
    assert template("{% if n %}{{ hosts }}{% endif %}").names == {"n", "hosts"}


@pytest.mark.parametrize("text", ["{{ victm }}", "is {{ victm }}", "{{ r.okk }}", "{{ hosts[7] }}"])
def test_undefined_names_are_errors(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"undefined|no attribute|no element"):
        render(text, SCOPE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{ n + }}", "ends too early"),
        ("{{ n | nofilter }}", "there is no filter 'nofilter'"),
        ("{{ n | lenth }}", "did you mean 'length'?"),
        ("{{ n is nothing }}", "there is no test 'nothing'"),
        ("{% if n %}x", "{% if %} is never closed"),
        ("{{ }}", "empty|ends too early|Expected an expression"),
    ],
)
def test_mistakes_are_told_in_words(text: str, words: str) -> None:
    with pytest.raises(ExpressionError, match=words.replace("%}", "%\\}").replace("{%", "\\{%")):
        template(text)


@pytest.mark.parametrize(
    "text",
    [
        "{{ n.__class__ }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ hosts.append('x') }}",
        "{{ r.update(ok=false) }}",
        "{{ host.format.__globals__ }}",
        "{{ '{0.__class__}'.format(n) }}",
        "{{ n | attr('__class__') }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ self.__init__ }}",
        "{{ range(1000000000) }}",
        "{{ lipsum }}",
        "{% include 'x' %}",
        "{% import 'os' as os %}{{ os }}",
    ],
)
def test_there_is_no_way_out(text: str) -> None:
    with pytest.raises(ExpressionError):
        render(text, dict(SCOPE))
    assert SCOPE["hosts"] == ["host0", "host1"]


@pytest.mark.parametrize(
    "text",
    [
        "{{ 'x' * 10**9 }}",
        "{{ hosts * 10**9 }}",
        "{{ 9**(9**9) }}",
        "{{ 10**4000 * 10**4000 }}",
        "{{ 'x'.ljust(10**9) }}",
        "{{ 'x' | center(10**9) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{% for i in hosts %}{{ i }}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)
def test_nothing_grows_or_goes_on_without_bound(text: str) -> None:
    with pytest.raises(ExpressionError):
        render(text, dict(SCOPE))


def test_products_of_an_ordinary_size_are_fine() -> None:
    assert render("{{ 2**10 * 3 }}", {}) == 3072
    assert render("{{ 'ab' * 3 }}", {}) == "ababab"
    assert render("{{ 1.5 * 2 }}", {}) == 3.0


def test_compiling_is_done_once() -> None:
    assert template("{{ n }} again") is template("{{ n }} again")
    assert expression("n > 1") is expression("n > 1")


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from(list("{}%|()[]'\" n.+-*/=,#x1_")), max_size=30))
def test_any_text_gives_a_value_or_our_own_error(text: str) -> None:
    for use in (render, evaluate):
        try:
            use(text, SCOPE)
        except ExpressionError as error:
            assert str(error)
