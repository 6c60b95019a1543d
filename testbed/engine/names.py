"""Names that expressions of one trial may use, and everything that is computed from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from testbed.errors import PlaybookError, TestbedError
from testbed.playbook.args import RackNames
from testbed.playbook.expressions import ExpressionError, evaluate, has_expression, render
from testbed.playbook.model import AnyStep, TaskStep
from testbed.playbook.task import TaskArgs

Extra = Mapping[str, Any]
NONE: Extra = {}


class Names:
    """Variables, results of tasks, and built-in names of one trial.

    :param values: what is known at its start.
    :param rack: names of the rack, for arguments that must be among them.
    """

    def __init__(self, values: Mapping[str, Any], rack: RackNames) -> None:
        self.values = dict(values)
        self._rack = rack

    def holds(self, text: str, step: AnyStep, extra: Extra = NONE) -> bool:
        """Whether a condition is true. :raises ExpressionError: with the place of the step."""
        try:
            return bool(evaluate(text, {**self.values, **extra}))
        except ExpressionError as error:
            raise _placed(error, step) from None

    def items(self, step: TaskStep) -> list[Any]:
        """Items of a loop. :raises PlaybookError: when it does not run over a list."""
        try:
            if isinstance(step.loop, str):
                items = evaluate(step.loop, self.values)
            else:
                items = render(step.loop, self.values)
        except ExpressionError as error:
            raise _placed(error, step) from None
        if not isinstance(items, list | tuple | range):
            raise PlaybookError(
                f"{step.place}: a loop runs over a list, not {items!r}", place=str(step.place)
            )
        return list(items)

    def title(self, step: AnyStep, extra: Extra = NONE) -> str:
        """The name of a step, for people: one that cannot be rendered fails no task."""
        if not has_expression(step.name):
            return step.name
        try:
            return str(render(step.name, {**self.values, **extra}))
        except ExpressionError:
            return step.name

    def arguments(self, step: TaskStep, extra: Extra = NONE) -> TaskArgs:
        """Arguments of a task, checked.

        :raises PlaybookError: naming the place, when a result that they come from does not fit.
        """
        if step.fixed is not None:
            return step.fixed
        try:
            rendered = render(step.args, {**self.values, **extra})
            return step.spec.args.model_validate(rendered, context=self._rack)
        except ExpressionError as error:
            raise _placed(error, step) from None
        except ValidationError as error:
            faults = "; ".join(
                f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg']}"
                for fault in error.errors(include_url=False)
            )
            raise PlaybookError(
                f"{step.place}: task {step.spec.name} was given what it cannot use: {faults}",
                remedy="look at the results that these arguments come from",
                place=str(step.place),
            ) from None


def result_fields(
    status: str,
    *,
    elapsed_s: float = 0.0,
    attempts: int = 0,
    error: TestbedError | None = None,
    results: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """The fields that every registered result has beside those of its task."""
    return {
        "ok": status == "ok",
        "status": status,
        "elapsed_s": elapsed_s,
        "attempts": attempts,
        "error": None if error is None else error.as_record(),
        "results": results or [],
    }


def _placed(error: ExpressionError, step: AnyStep) -> ExpressionError:
    placed = ExpressionError(f"{step.place}: {error.message}", **error.fields)
    placed.fields["place"] = str(step.place)
    return placed
