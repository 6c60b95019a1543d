"""Reads lists of tasks: one task, block/rescue/always, or parallel, to any depth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from testbed.playbook.arguments import UNKNOWN, ArgumentChecker
from testbed.playbook.expressions import ExpressionError, evaluate, has_expression, render, texts_in
from testbed.playbook.model import AnyStep, BlockStep, ParallelStep, TaskStep
from testbed.playbook.names import Names
from testbed.playbook.task import TaskSpec
from testbed.source.places import Place
from testbed.source.reader import Document, KeyPath
from testbed.source.suggest import nearest
from testbed.source.validation import validate
from testbed.timing.quantity import Seconds

IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_]*$"
Tags = tuple[str, ...] | str
Deadline = Annotated[Seconds, Field(gt=0)]


class StepKeys(BaseModel):
    """Keys that every step may have."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str | None = None
    when: str | bool | None = None
    tags: Tags = ()
    deadline: Deadline | None = None

    def tag_set(self) -> frozenset[str]:
        """The tags; one may be written without a list."""
        return frozenset([self.tags] if isinstance(self.tags, str) else self.tags)


class TaskKeys(StepKeys):
    """Keys of a task beside the task itself."""

    loop: list[Any] | str | None = None
    register_as: Annotated[str, Field(pattern=IDENTIFIER)] | None = Field(None, alias="register")
    until: str | None = None
    retries: Annotated[int, Field(ge=0, le=10_000)] | None = None
    delay: Seconds = 1.0
    on_timeout: Literal["fail", "continue", "retry"] = "fail"
    ignore_errors: bool = False


TASK_KEYS = frozenset(info.alias or name for name, info in TaskKeys.model_fields.items())
BLOCK_KEYS = frozenset({"block", "rescue", "always"})
STEP_KEYS = frozenset(StepKeys.model_fields)


class StepReader:
    """Reads steps of one document.

    :ivar specs: every task that the playbook uses, with its place, for checks over the whole.
    """

    def __init__(
        self,
        document: Document,
        names: Names,
        arguments: ArgumentChecker,
        specs: Mapping[str, TaskSpec],
    ) -> None:
        self._document = document
        self._names = names
        self._arguments = arguments
        self._known = specs

    def read(
        self, raw: Any, path: KeyPath, *, within_s: float | None = None
    ) -> tuple[AnyStep, ...]:
        """Read a list of steps. :param within_s: deadline of what encloses them."""
        if not isinstance(raw, list):
            self._document.fault(
                self._document.place(path),
                "a list of tasks belongs here" + (", and this is empty" if raw is None else ""),
                "write - task: arguments",
            )
            return ()
        steps = (self._step(item, (*path, i), within_s) for i, item in enumerate(raw))
        return tuple(step for step in steps if step is not None)

    def announce(self, raw: Any, path: KeyPath) -> Iterator[tuple[str, Place]]:
        """Names that the steps will register, without checking anything."""
        for index, item in enumerate(raw if isinstance(raw, list) else ()):
            if not isinstance(item, Mapping):
                continue
            here = (*path, index)
            if isinstance(item.get("register"), str):
                yield item["register"], self._document.place((*here, "register"))
            for key in (*BLOCK_KEYS, "parallel"):
                yield from self.announce(item.get(key), (*here, key))
            for key, value in item.items():
                spec = self._known.get(key)
                if spec is not None and spec.sets_variables and isinstance(value, Mapping):
                    for name in value:
                        yield name, self._document.key_place((*here, key, name))

    def _step(self, raw: Any, path: KeyPath, within_s: float | None) -> AnyStep | None:
        place = self._document.place(path)
        if not isinstance(raw, Mapping):
            what = "this list item is empty" if raw is None else f"{raw!r} is no task"
            self._document.fault(place, what, "write - task: arguments")
            return None
        if BLOCK_KEYS & raw.keys():
            return self._block(raw, path, place, within_s)
        if "parallel" in raw:
            return self._parallel(raw, path, place, within_s)
        return self._task(raw, path, place, within_s)

    # --- common ----------------------------------------------------------------------------

    def _common(self, keys: StepKeys, path: KeyPath, within_s: float | None) -> str | None:
        if keys.deadline is not None and within_s is not None and keys.deadline > within_s:
            self._document.fault(
                self._document.place((*path, "deadline")),
                f"a deadline of {keys.deadline:g} s cannot be kept inside one of {within_s:g} s",
                "deadlines must nest: shorten this one, or lengthen the one around it",
            )
        if keys.when is None:
            return None
        if isinstance(keys.when, str):
            self._names.compile(keys.when, (*path, "when"), bare=True)
        return str(keys.when)

    def _title(self, keys: StepKeys, path: KeyPath, default: str, local: Sequence[str] = ()) -> str:
        if keys.name is None:
            return default
        if has_expression(keys.name):
            self._names.compile(keys.name, (*path, "name"), bare=False, local=local)
        return keys.name

    def _block(
        self, raw: Mapping[str, Any], path: KeyPath, place: Place, within_s: float | None
    ) -> AnyStep | None:
        rest = {k: v for k, v in raw.items() if k not in BLOCK_KEYS}
        keys = validate(StepKeys, rest, self._document, path, what="block")
        if "block" not in raw:
            self._document.fault(place, "rescue and always belong to a block", "add block: […]")
        deadline_s = keys.deadline if keys else None
        inner = deadline_s if deadline_s is not None else within_s
        when = self._common(keys, path, within_s) if keys else None
        parts: dict[str, tuple[AnyStep, ...]] = {}
        outside = self._names.in_rescue
        for key in ("block", "rescue", "always"):
            if key in raw:
                self._names.in_rescue = outside or key == "rescue"
                parts[key] = self.read(
                    raw[key], (*path, key), within_s=inner if key == "block" else within_s
                )
        self._names.in_rescue = outside
        if keys is None:
            return None
        return BlockStep(
            name=self._title(keys, path, "block"),
            place=place,
            when=when,
            tags=keys.tag_set(),
            deadline_s=deadline_s,
            **parts,
        )

    def _parallel(
        self, raw: Mapping[str, Any], path: KeyPath, place: Place, within_s: float | None
    ) -> AnyStep | None:
        rest = {k: v for k, v in raw.items() if k != "parallel"}
        keys = validate(StepKeys, rest, self._document, path, what="parallel")
        deadline_s = keys.deadline if keys else None
        when = self._common(keys, path, within_s) if keys else None
        inner = deadline_s if deadline_s is not None else within_s
        children = self.read(raw["parallel"], (*path, "parallel"), within_s=inner)
        if keys is None:
            return None
        return ParallelStep(
            name=self._title(keys, path, "parallel"),
            place=place,
            when=when,
            tags=keys.tag_set(),
            children=children,
            deadline_s=deadline_s,
        )

    # --- tasks -----------------------------------------------------------------------------

    def _task(
        self, raw: Mapping[str, Any], path: KeyPath, place: Place, within_s: float | None
    ) -> AnyStep | None:
        tasks = [key for key in raw if key not in TASK_KEYS]
        known = [key for key in tasks if key in self._known]
        for key in tasks:
            if key not in self._known:
                self._document.fault(
                    self._document.key_place((*path, key)),
                    f"there is no task and no key {key!r}",
                    nearest(key, [*self._known, *TASK_KEYS, *BLOCK_KEYS, "parallel"])
                    or "`testbed schema` lists all tasks",
                )
        if len(known) > 1:
            self._document.fault(
                self._document.key_place((*path, known[1])),
                f"one step has two tasks: {known[0]} and {known[1]}",
                "make two steps of it",
            )
        rest = {k: v for k, v in raw.items() if k in TASK_KEYS}
        keys = validate(TaskKeys, rest, self._document, path, what="task")
        if not tasks:
            self._document.fault(
                place, "this step has no task", "add one, as wait: 2 s; or block: or parallel:"
            )
        if not known:
            return None
        spec = self._known[known[0]]
        args = self._long_form(spec, raw[spec.name], (*path, spec.name))
        if keys is None:
            return None
        when = self._common(keys, path, within_s)
        items = self._items(keys.loop, (*path, "loop"))
        local = () if items is None else ("item",)
        fixed = None
        if args is not None:
            fixed = self._arguments.check(spec, args, (*path, spec.name), items)
        title = self._title(keys, path, spec.name, local)
        self._declare(keys, spec, args, path)
        if keys.until is not None:
            self._names.compile(keys.until, (*path, "until"), bare=True, local=local)
        elif keys.retries and keys.on_timeout == "continue":
            self._document.fault(
                self._document.place((*path, "on_timeout")),
                "a task that goes on after a timeout is not tried again",
                "use on_timeout: retry with retries, or continue without",
            )
        return TaskStep(
            name=title,
            place=place,
            when=when,
            tags=keys.tag_set(),
            spec=spec,
            args=args or {},
            fixed=fixed,
            register=keys.register_as,
            loop=keys.loop,
            until=keys.until,
            retries=keys.retries if keys.retries is not None else (3 if keys.until else 0),
            delay_s=keys.delay,
            deadline_s=keys.deadline,
            on_timeout=keys.on_timeout,
            ignore_errors=keys.ignore_errors,
        )

    def _long_form(self, spec: TaskSpec, given: Any, path: KeyPath) -> dict[str, Any] | None:
        """Arguments as a mapping, also where the playbook writes the one value alone."""
        if isinstance(given, Mapping):
            return dict(given)
        if given is None:
            return {}
        if spec.short is not None:
            return {spec.short: given}
        self._document.fault(
            self._document.place(path),
            f"task {spec.name}: the arguments must be a mapping, not {given!r}",
            f"allowed: {', '.join(spec.args.model_fields) or 'none'}",
        )
        return None

    def _declare(
        self, keys: TaskKeys, spec: TaskSpec, args: Mapping[str, Any] | None, path: KeyPath
    ) -> None:
        if keys.register_as is not None:
            place = self._document.place((*path, "register"))
            fields = None if spec.sets_variables else spec.result
            self._names.register(keys.register_as, place, fields)
        if spec.sets_variables:
            for name in args or {}:
                place = self._document.key_place((*path, spec.name, name))
                self._names.register(name, place, None)

    def _items(self, loop: Any, path: KeyPath) -> list[Any] | None:
        """Loop items at the first sweep point where they can be known, else unknown ones."""
        if loop is None:
            return None
        document, names = self._document, self._names
        if isinstance(loop, str):
            compiled = names.compile(loop, path, bare=True)
            if compiled is None or not names.is_known(compiled):
                return [UNKNOWN]
            found: list[Any] = []
            for scope in names.scopes:
                try:
                    value = evaluate(loop, scope)
                except ExpressionError as error:
                    document.fault(document.place(path), error.message)
                    return [UNKNOWN]
                if not isinstance(value, list | tuple | range):
                    document.fault(document.place(path), f"a loop runs over a list, not {value!r}")
                    return [UNKNOWN]
                found += [item for item in value if item not in found]
            return found
        known = True
        for where, text in texts_in(loop):
            compiled = names.compile(text, (*path, *where), bare=False)
            known = known and compiled is not None and names.is_known(compiled)
        if not loop:
            document.fault(document.place(path), "the loop is over nothing", "list some items")
        return list(render(loop, names.scopes[0])) if known else [UNKNOWN]
