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
MAX_LENGTH = 1_000_000
MAX_BITS = 4096
PADDING_METHODS = frozenset({"center", "expandtabs", "ljust", "rjust", "zfill", "format"})
PADDING_FILTERS = ("center", "format", "indent", "wordwrap", "slice", "batch", "lipsum")


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
    """Read an expression, bare or in braces. :raises ExpressionError: when it is none."""
    bare = _bare(text)
    if not bare:
        raise ExpressionError("the expression is empty")
    return _of_expression(text, bare, _parse("{{" + bare + "}}"))


@functools.lru_cache(maxsize=4096)
def template(text: str) -> Compiled:
    """Read a text with expressions in it. :raises ExpressionError: when it is not valid."""
    from jinja2 import nodes

    parsed = _parse(text.strip())
    body = parsed.body
    if len(body) == 1 and isinstance(body[0], nodes.Output):
        parts = body[0].nodes
        if len(parts) == 1 and not isinstance(parts[0], nodes.TemplateData):
            return _of_expression(text, _bare(text), parsed)
    names, fields = _free_names(parsed)

    def build() -> Callable[[Scope], Any]:
        compiled: Callable[[Scope], Any] = _environment().from_string(text).render
        return compiled

    return Compiled(text, names, fields, _when_called(text, build))


def _bare(text: str) -> str:
    """The expression without its braces, if it has any."""
    braces = re.fullmatch(r"\{\{-?(.*?)-?\}\}", text.strip(), re.DOTALL)
    return (braces[1] if braces else text).strip()


def _parse(text: str) -> Any:
    """The syntax tree. Of jinja's statements only ``if`` is allowed: a loop inside a text could
    go on for ever, and playbooks have ``loop`` for that."""
    from jinja2 import nodes

    try:
        parsed = _environment().parse(text)
    except Exception as error:
        raise ExpressionError(_plain(error)) from None
    for statement in parsed.find_all(nodes.Stmt):
        if not isinstance(statement, nodes.Output | nodes.If):
            name = type(statement).__name__.lower()
            raise ExpressionError(f"{{% {name} %}} is not allowed in a text; use loop, set or when")
    return parsed


def _of_expression(text: str, bare: str, parsed: Any) -> Compiled:
    names, fields = _free_names(parsed)

    def build() -> Callable[[Scope], Any]:
        from jinja2 import Undefined

        compiled = _environment().compile_expression(bare, undefined_to_none=False)

        def call(scope: Scope) -> Any:
            value = compiled(**scope)
            if isinstance(value, Undefined):
                str(value)  # StrictUndefined tells which name it was
            return value

        return call

    return Compiled(text, names, fields, _when_called(text, build))


def _when_called(text: str, build: Callable[[], Callable[[Scope], Any]]) -> Callable[[Scope], Any]:
    """Make code of an expression at its first use: most of a long playbook has none before a run.

    Whatever goes wrong is told as :class:`ExpressionError`.
    """
    built: Callable[[Scope], Any] | None = None

    def call(scope: Scope) -> Any:
        nonlocal built
        try:
            built = built or build()
            return built(scope)
        except ExpressionError:
            raise
        except Exception as error:  # whatever the user's expression does wrong
            raise ExpressionError(
                f"expression {text!r}: {_plain(error)}", expression=text
            ) from None

    return call


def _plain(error: Exception) -> str:
    """What went wrong, in words; after a semicolon, what would be right."""
    message = (str(error) or type(error).__name__).rstrip(".")
    if message.startswith("Unexpected end of template"):
        block = re.search(r"needs to be closed is '(\w+)'", message)
        return f"{{% {block[1] if block else '…'} %}} is never closed"
    if "end of print statement" in message or "end of template" in message:
        return "it ends too early, or a bracket or quote in it is not closed"
    return re.sub(r"expected token '(.*?)', got '(.*?)'", r"\2 stands where \1 should", message)


def _free_names(parsed: Any) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    """Names that a text takes from its scope, and fields that it takes of them."""
    from jinja2 import meta, nodes

    environment = _environment()
    names: set[str] = set()
    fields: set[tuple[str, str]] = set()
    scoped = False
    for node in parsed.find_all(nodes.Node):
        match node:
            case nodes.Name():
                names.add(node.name)
            case nodes.Getattr(node=nodes.Name(name=name)):
                fields.add((name, node.attr))
            case nodes.Getitem(node=nodes.Name(name=name), arg=nodes.Const(value=key)):
                fields.add((name, str(key)))
            case nodes.Filter() | nodes.Test():
                kind = type(node).__name__.lower()
                known = environment.filters if kind == "filter" else environment.tests
                if node.name not in known:
                    near = did_you_mean(node.name, known)
                    raise ExpressionError(f"there is no {kind} {node.name!r}; {near}")
            case nodes.Stmt() if not isinstance(node, nodes.Output):
                scoped = True
    if scoped:  # loops and assignments have names of their own
        try:
            names = meta.find_undeclared_variables(parsed)
        except Exception as error:
            raise ExpressionError(_plain(error)) from None
    free = frozenset(names - environment.globals.keys())
    return free, frozenset(field for field in fields if field[0] in free)


@functools.cache
def _environment() -> Any:
    """The sandbox: no attribute that begins with an underscore, no changing of values, nothing
    that grows without bound, and of jinja's globals and filters only what has no state."""
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Sandbox(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset({"*", "**"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            _refuse_growth(operator, left, right)
            return super().call_binop(context, operator, left, right)

        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            padding = isinstance(obj, str) and attr in PADDING_METHODS
            return not padding and super().is_safe_attribute(obj, attr, value)

    environment = Sandbox(undefined=StrictUndefined, autoescape=False)
    environment.globals = {"range": _bounded_range, "min": min, "max": max, "abs": abs}
    for name in PADDING_FILTERS:
        environment.filters.pop(name, None)
    return environment


def _refuse_growth(operator: str, left: Any, right: Any) -> None:
    """Refuse products that would take the machine's memory: ``'x' * 10**9``, ``9**9**9``."""
    sized = [v for v in (left, right) if isinstance(v, str | bytes | list | tuple)]
    counts = [v for v in (left, right) if isinstance(v, int)]
    if operator == "*" and sized and counts and len(sized[0]) * counts[0] > MAX_LENGTH:
        raise ValueError(f"a text or list may have {MAX_LENGTH} members at most")
    bits = 0
    if len(counts) == 2:
        bits = left.bit_length() * (right if operator == "**" else 1)
    if bits > MAX_BITS:
        raise ValueError(f"a number may have {MAX_BITS} bits at most")


def _bounded_range(*arguments: int) -> range:
    numbers = range(*arguments)
    if len(numbers) > MAX_RANGE:
        raise ValueError(f"a range may have {MAX_RANGE} members at most")
    return numbers
