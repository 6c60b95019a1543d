"""Checks the arguments of tasks before anything runs, for every sweep point.

What depends on variables only is evaluated and validated in full; what depends on results of
earlier tasks stays unknown, and only its names are checked.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.playbook.args import RackNames
from testbed.playbook.expressions import ExpressionError, render, texts_in
from testbed.playbook.names import Names
from testbed.playbook.task import TaskArgs, TaskSpec
from testbed.source.reader import Document, KeyPath
from testbed.source.validation import validate

UNKNOWN = object()

MAX_FAULTS = 10
"""Of one task: a fault at every point of a large sweep is not told more often."""


class ArgumentChecker:
    """Checks arguments against the model of their task.

    :param rack: names of the rack; ``None`` when the rack file has faults of its own.
    """

    def __init__(self, document: Document, names: Names, rack: RackNames | None) -> None:
        self._document = document
        self._names = names
        self._rack = rack

    def check(
        self,
        spec: TaskSpec,
        args: Mapping[str, Any],
        path: KeyPath,
        items: Sequence[Any] | None,
    ) -> TaskArgs | None:
        """Check them for all sweep points and loop items.

        :param items: loop items where they are known; ``[UNKNOWN]`` when there is a loop whose
            items are not; ``None`` without a loop.
        :return: the arguments, when they have no expressions and no faults.
        """
        local = () if items is None else ("item",)
        unknown: list[KeyPath] = []
        texts = list(texts_in(args))
        items_known = items is None or UNKNOWN not in items
        for where, text in texts:
            compiled = self._names.compile(text, (*path, *where), bare=False, local=local)
            known = compiled and self._names.is_known(compiled, local if items_known else ())
            if not known:
                unknown.append(where)
        if not texts:
            return validate(
                spec.args, dict(args), self._document, path,
                what=f"task {spec.name}", context=self._rack,
            )  # fmt: skip
        self._at_every_point(spec, args, path, items, frozenset(unknown))
        return None

    def _at_every_point(
        self,
        spec: TaskSpec,
        args: Mapping[str, Any],
        path: KeyPath,
        items: Sequence[Any] | None,
        unknown: frozenset[KeyPath],
    ) -> None:
        document = self._document
        first = len(document.faults)
        seen: set[str] = set()
        for scope in self._names.scopes:
            for item in (None,) if items is None else items:
                before = len(document.faults)
                values = scope if items is None else {**scope, "item": item}
                rendered = self._render(args, values, path, (), unknown)
                if len(document.faults) == before:
                    key = json.dumps(rendered, sort_keys=True, default=repr)
                    if key not in seen:
                        seen.add(key)
                        validate(
                            spec.args, rendered, document, path,
                            what=f"task {spec.name}", unknown=unknown, context=self._rack,
                        )  # fmt: skip
                self._explain(before, scope)
                if len(document.faults) - first >= MAX_FAULTS:
                    return

    def _render(
        self,
        value: Any,
        scope: Mapping[str, Any],
        path: KeyPath,
        where: KeyPath,
        unknown: frozenset[KeyPath],
    ) -> Any:
        """The value with the expressions evaluated that are known; failures are faults."""
        if where in unknown:
            return value
        if isinstance(value, Mapping):
            return {k: self._render(v, scope, path, (*where, k), unknown) for k, v in value.items()}
        if isinstance(value, list):
            return [self._render(v, scope, path, (*where, i), unknown) for i, v in enumerate(value)]
        try:
            return render(value, scope)
        except ExpressionError as error:
            self._document.fault(self._document.place((*path, *where)), error.message)
            return None

    def _explain(self, before: int, scope: Mapping[str, Any]) -> None:
        """Say at which sweep point a fault is."""
        faults = self._document.faults
        if len(faults) == before or not self._names.swept:
            return
        values = ", ".join(f"{name}={scope[name]!r}" for name in self._names.swept)
        for index in range(before, len(faults)):
            message = f"{faults[index].message} (with {values})"
            faults[index] = dataclasses.replace(faults[index], message=message)
