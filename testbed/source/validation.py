"""Checks values against pydantic models, with faults at the places of the file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from testbed.source.reader import Document, KeyPath, lookup
from testbed.source.suggest import did_you_mean
from testbed.source.wording import in_words, wrong_kind

Model = TypeVar("Model", bound=BaseModel)

MAX_LEVELS = 4
"""How deep sections are nested in a file; deeper faults cost the section above them."""


def validate(
    model: type[Model],
    value: Any,
    document: Document,
    path: KeyPath = (),
    *,
    what: str = "",
    unknown: Collection[KeyPath] = (),
    context: Any = None,
) -> Model | None:
    """Read a value into a model; faults go to the document.

    :param what: the thing in words, for messages (``task wait``).
    :param unknown: paths, relative to ``value``, whose values are not known yet: faults at
        them are passed over.
    :param context: handed to the validators, see :mod:`testbed.playbook.args`.
    """
    return _check(model, value, document, path, what, unknown, context)[0]


def _check(
    model: type[Model],
    value: Any,
    document: Document,
    path: KeyPath = (),
    what: str = "",
    unknown: Collection[KeyPath] = (),
    context: Any = None,
) -> tuple[Model | None, list[KeyPath]]:
    """The model, or ``None`` with the relative paths of its faults."""
    try:
        checked = model.model_validate(value, context=context)
    except ValidationError as error:
        return None, list(_report_all(model, value, error, document, path, what, unknown))
    guessed = list(_guessed(checked, value, ()))
    for where, kind, raw in guessed:
        document.fault(
            document.place((*path, *where)), _subject(what) + wrong_kind(_name(where), kind, raw)
        )
    return (None if guessed else checked), [where for where, _, _ in guessed]


def validate_sections(
    model: type[Model],
    value: Any,
    document: Document,
    *,
    what: str,
    stand_in: Mapping[str, Any],
) -> tuple[Model | None, frozenset[str]]:
    """Read a whole file into its model. A fault in one section does not hide those in others.

    :param stand_in: values that replace required sections which are missing or faulty.
    :return: the model, without what is faulty; and the names of the sections that are not whole,
        or that an unknown key was probably meant to be.
    """
    if not isinstance(value, Mapping):
        document.fault(document.place(()), wrong_kind(what, "a mapping of sections", value))
        return None, frozenset()
    checked, faults = _check(model, value, document)
    if checked is not None:
        return checked, frozenset()
    allowed = set(_allowed_keys(model, ()))
    broken = {str(where[0]) for where in faults if where}
    broken |= {name for key in broken - allowed for name in _near(key, allowed)}
    kept: Mapping[str, Any] = value
    for _ in range(MAX_LEVELS):  # what lacks a faulty part may become faulty itself
        for where in faults:
            kept = _without(kept, where)
        completed = {**stand_in, **kept}
        try:
            return model.model_validate(completed), frozenset(broken)
        except ValidationError as error:
            found = error.errors(include_url=False)
            faults = [_real_path(completed, detail["loc"])[:-1] for detail in found]
    return None, frozenset(broken)


def _without(value: Mapping[str, Any], path: KeyPath) -> Mapping[str, Any]:
    """The mapping without what is at the path; a list is left out as a whole, so that the numbers
    of its other items keep their meaning."""
    if not path or path[0] not in value:
        return value
    key, rest = str(path[0]), path[1:]
    inner = value[key]
    if rest and isinstance(rest[0], str) and isinstance(inner, Mapping) and rest[0] in inner:
        return {**value, key: _without(inner, rest)}
    return {k: v for k, v in value.items() if k != key}


def _near(key: str, allowed: Collection[str]) -> Iterator[str]:
    hint = did_you_mean(key, allowed)
    yield from (name for name in allowed if hint == f"did you mean {name!r}?")


def _report_all(
    model: type[BaseModel],
    value: Any,
    error: ValidationError,
    document: Document,
    path: KeyPath,
    what: str,
    unknown: Collection[KeyPath],
) -> Iterator[KeyPath]:
    found = [(_real_path(value, d["loc"]), d) for d in error.errors(include_url=False)]
    for relative, detail in found:
        if detail["type"] != "extra_forbidden" and any(
            _covers(open_path, relative) for open_path in unknown
        ):
            continue
        if detail["type"] == "too_short" and any(
            len(other) > len(relative) and other[: len(relative)] == relative for other, _ in found
        ):
            continue  # too short because of its faulty items, which are told
        _report(model, detail, document, path, relative, what)
        yield relative


def _covers(open_path: KeyPath, path: KeyPath) -> bool:
    shorter = min(len(open_path), len(path))
    # A fault above an unknown value (a validator of the whole model) may be due to it too.
    return open_path[:shorter] == path[:shorter]


def _real_path(value: Any, loc: tuple[int | str, ...]) -> KeyPath:
    """pydantic's ``loc`` without the names of union branches and validators in it."""
    path: KeyPath = ()
    for index, key in enumerate(loc):
        if key == "[key]":
            return (*path, key)
        try:
            lookup(value, (*path, key))
        except (LookupError, TypeError):
            if index == len(loc) - 1:
                return (*path, key)
            continue
        path = (*path, key)
    return path


def _report(
    model: type[BaseModel],
    detail: ErrorDetails,
    document: Document,
    path: KeyPath,
    relative: KeyPath,
    what: str,
) -> None:
    full = (*path, *relative)
    subject = _subject(what)
    if detail["type"] == "extra_forbidden":
        key = str(relative[-1])
        document.fault(
            document.key_place(full),
            f"{subject}unknown key {key!r}",
            did_you_mean(key, _allowed_keys(model, relative[:-1])),
        )
    elif detail["type"] == "missing":
        document.fault(
            document.key_place(full[:-1]),
            f"{subject}key {str(relative[-1])!r} is missing",
            f"add {relative[-1]}: …",
        )
    elif relative and relative[-1] == "[key]":
        message, hint = in_words(detail, "a name")
        document.fault(document.key_place(full[:-1]), f"{subject}{message}", hint)
    else:
        message, hint = in_words(detail, _name(relative) if relative or not what else "it")
        document.fault(document.place(full), f"{subject}{message}", hint)


def _subject(what: str) -> str:
    return f"{what}: " if what else ""


def _name(relative: KeyPath) -> str:
    """The value at a path, in words: ``'ring'``, or ``item 2 of 'ring'``."""
    if not relative:
        return "this"
    last = relative[-1]
    if isinstance(last, str):
        return repr(last)
    names = [key for key in relative if isinstance(key, str)]
    return f"item {last + 1} of {names[-1]!r}" if names else f"item {last + 1}"


def _guessed(checked: Any, raw: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str, Any]]:
    """Texts that pydantic has taken for numbers or truth values: ``yes``, ``010``, ``"3"``.

    What they mean differs between versions of YAML, so that taking one of the meanings would be
    a surprise for somebody.
    """
    if isinstance(raw, str):
        if isinstance(checked, int) and not isinstance(checked, str):
            kind = "true or false" if isinstance(checked, bool) else "a whole number"
            yield path, kind, raw
    elif isinstance(raw, Mapping):
        if isinstance(checked, BaseModel):
            for name, info in type(checked).model_fields.items():
                key = info.alias or name
                if key in raw:
                    yield from _guessed(getattr(checked, name), raw[key], (*path, key))
        elif isinstance(checked, Mapping):
            for key in raw.keys() & checked.keys():
                yield from _guessed(checked[key], raw[key], (*path, key))
    elif isinstance(raw, list) and isinstance(checked, list | tuple) and len(raw) == len(checked):
        for index, (item, raw_item) in enumerate(zip(checked, raw, strict=True)):
            yield from _guessed(item, raw_item, (*path, index))


def _allowed_keys(model: Any, path: KeyPath) -> Iterator[str]:
    """Keys that the model found at ``path`` below ``model`` allows."""
    candidates: list[Any] = [model]
    for key in path:
        following: list[Any] = []
        for candidate in candidates:
            for leaf in _models(candidate):
                if isinstance(key, str) and key in leaf.model_fields:
                    following.append(leaf.model_fields[key].annotation)
                following += [
                    info.annotation for info in leaf.model_fields.values() if info.alias == key
                ]
            if isinstance(key, int) or not following:
                following += [arg for arg in get_args(candidate) if arg is not None]
        candidates = following or candidates
    for candidate in candidates:
        for leaf in _models(candidate):
            for name, info in leaf.model_fields.items():
                yield info.alias or name


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for argument in get_args(annotation):
        yield from _models(argument)
