"""Expressions of playbooks: sandboxed jinja2, strict on undefined names, native types.

``"{{ spare }}"`` alone gives the value itself, with its type; inside a longer text it is
written out. ``when``, ``until``, ``loop`` and ``value`` take the expression bare or in braces.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from testbed.errors import PlaybookError
from testbed.source.suggest import did_you_mean

Scope = Mapping[str, Any]

MAX_RANGE = 100_000


class ExpressionError(PlaybookError):
    """An expression that cannot be compiled or evaluated."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled expression or template.

    :ivar names: free names that it uses.
    :ivar fields: fields that it takes of free names, as ``("failover", "lost_steps")``.
    """

    text: str
    names: frozenset[str]
    fields: frozenset[tuple[str, str]]
    call: Callable[[Scope], Any]


def has_expression(value: Any) -> bool:
    """Whether there is any expression in the value, at any depth."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, Mapping):
        return any(has_expression(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(has_expression(item) for item in value)
    return False


def render(value: Any, scope: Scope) -> Any:
    """The value with all its expressions evaluated; values without any are returned as they are.

    :raises ExpressionError: for an undefined name, or an expression that fails.
    """
    if isinstance(value, str):
        return template(value).call(scope) if has_expression(value) else value
    if isinstance(value, Mapping):
        return {key: render(item, scope) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [render(item, scope) for item in value]
    return value


def evaluate(text: Any, scope: Scope) -> Any:
    """The value of an expression, bare or in braces. Values that are no texts stand for themselves.

    :raises ExpressionError: as :func:`render`.
    """
    return expression(text).call(scope) if isinstance(text, str) else text


def texts_in(value: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """All texts with expressions in a value, with their paths in it."""
    if isinstance(value, str):
        if has_expression(value):
            yield (), value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            for path, text in texts_in(item):
                yield (key, *path), text
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            for path, text in texts_in(item):
                yield (index, *path), text


@functools.lru_cache(maxsize=4096)
def expression(text: str) -> Compiled:
    """Compile an expression, bare or in braces. :raises ExpressionError: when it is none."""
    bare = _bare(text)
    if not bare:
        raise ExpressionError("the expression is empty")
    return _compile_expression(text, bare)


@functools.lru_cache(maxsize=4096)
def template(text: str) -> Compiled:
    """Compile a text with expressions in it. :raises ExpressionError: when it is not valid."""
    from jinja2 import TemplateSyntaxError, nodes

    try:
        parsed = _environment().parse(text.strip())
    except TemplateSyntaxError as error:
        raise ExpressionError(_plain(error)) from None
    body = parsed.body
    if len(body) == 1 and isinstance(body[0], nodes.Output):
        parts = body[0].nodes
        if len(parts) == 1 and not isinstance(parts[0], nodes.TemplateData):
            return _compile_expression(text, _bare(text))
    names, fields = _free_names(parsed)
    try:
        compiled = _environment().from_string(text)
    except Exception as error:
        raise ExpressionError(_plain(error)) from None
    return Compiled(text, names, fields, _guard(text, lambda scope: compiled.render(scope)))


def _bare(text: str) -> str:
    """The expression without its braces, if it has any."""
    braces = re.fullmatch(r"\{\{-?(.*?)-?\}\}", text.strip(), re.DOTALL)
    return (braces[1] if braces else text).strip()


def _compile_expression(text: str, bare: str) -> Compiled:
    try:
        parsed = _environment().parse("{{" + bare + "}}")
        compiled = _environment().compile_expression(bare, undefined_to_none=False)
    except Exception as error:
        raise ExpressionError(_plain(error)) from None
    names, fields = _free_names(parsed)

    def call(scope: Scope) -> Any:
        from jinja2 import Undefined

        value = compiled(**scope)
        if isinstance(value, Undefined):
            str(value)  # StrictUndefined tells which name it was
        return value

    return Compiled(text, names, fields, _guard(text, call))


def _guard(text: str, call: Callable[[Scope], Any]) -> Callable[[Scope], Any]:
    def guarded(scope: Scope) -> Any:
        try:
            return call(scope)
        except ExpressionError:
            raise
        except Exception as error:  # whatever the user's expression does wrong
            raise ExpressionError(
                f"expression {text!r}: {_plain(error)}", expression=text
            ) from None

    return guarded


def _plain(error: Exception) -> str:
    """What went wrong, in words; after a semicolon, what would be right."""
    message = (str(error) or type(error).__name__).rstrip(".")
    unknown = re.match(r"No (filter|test) named '([^']*)'", message)
    if unknown:
        kind, name = unknown.groups()
        known = _environment().filters if kind == "filter" else _environment().tests
        return f"there is no {kind} {name!r}; {did_you_mean(name, known)}"
    if message.startswith("Unexpected end of template"):
        block = re.search(r"needs to be closed is '(\w+)'", message)
        return f"{{% {block[1] if block else '…'} %}} is never closed"
    if "end of print statement" in message or "end of template" in message:
        return "it ends too early, or a bracket or quote in it is not closed"
    return re.sub(r"expected token '(.*?)', got '(.*?)'", r"\2 stands where \1 should", message)


def _free_names(parsed: Any) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    from jinja2 import meta, nodes

    names = frozenset(meta.find_undeclared_variables(parsed))
    fields = set()
    for node in parsed.find_all(nodes.Getattr):
        if isinstance(node.node, nodes.Name):
            fields.add((node.node.name, node.attr))
    for node in parsed.find_all(nodes.Getitem):
        if isinstance(node.node, nodes.Name) and isinstance(node.arg, nodes.Const):
            fields.add((node.node.name, str(node.arg.value)))
    return names, frozenset(f for f in fields if f[0] in names)


@functools.cache
def _environment() -> Any:
    """The sandbox: no attribute that begins with an underscore, no changing of values, a range
    that ends, and of jinja's globals only what has no state."""
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=False)
    environment.globals = {"range": _bounded_range, "min": min, "max": max, "abs": abs}
    return environment


def _bounded_range(*arguments: int) -> range:
    numbers = range(*arguments)
    if len(numbers) > MAX_RANGE:
        raise ValueError(f"a range may have {MAX_RANGE} members at most")
    return numbers
