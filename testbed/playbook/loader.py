"""Reads a playbook with its rack, checks both whole, and reports every fault at its place."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed.errors import InternalError
from testbed.playbook.args import RackNames
from testbed.playbook.arguments import ArgumentChecker
from testbed.playbook.expectations import STATISTICS, parse_expectation, parse_limit
from testbed.playbook.expressions import ExpressionError, has_expression, render
from testbed.playbook.file import MAX_POINTS, SCHEMA, PlaybookFile
from testbed.playbook.model import (
    AnyStep,
    Expectation,
    MeasureSpec,
    Playbook,
)
from testbed.playbook.names import Names
from testbed.playbook.overrides import Overrides, read_overrides
from testbed.playbook.plan import make_plan
from testbed.playbook.steps import StepReader
from testbed.playbook.task import task_specs
from testbed.playbook.walk import task_steps
from testbed.rack.loader import builtin_racks, load_rack
from testbed.rack.rack import Rack
from testbed.source.places import Diagnostic, FileFaults
from testbed.source.reader import Document, parse, read_text
from testbed.source.suggest import did_you_mean
from testbed.source.validation import validate_sections

STAND_IN: Mapping[str, Any] = {"schema": SCHEMA, "name": "unnamed", "tasks": []}
"""Values for required sections that are missing or faulty, to check the other sections."""


def load_playbook(
    path: Path | str,
    *,
    assignments: Mapping[str, str] | None = None,
    vars_file: Path | None = None,
    rack: str | None = None,
    mock: bool = False,
    trials: int | None = None,
    warmup: int | None = None,
) -> tuple[Playbook, Rack]:
    """Read and check a playbook and the rack that it runs on.

    :param assignments: ``--set`` arguments; values are read as YAML.
    :param vars_file: YAML file of variables; ``assignments`` win over it.
    :param rack: replaces the playbook's own rack.
    :param mock: use the mock twin of every device.
    :param trials: replaces the playbook's own number; ``warmup`` likewise.
    :raises FileFaults: with every fault of the playbook, the variables and the rack file.
    """
    path = Path(path)
    document = parse(read_text(path), str(path))
    document.check()
    overrides = read_overrides(assignments or {}, vars_file)
    file, broken = validate_sections(
        PlaybookFile, document.value, document, what="a playbook", stand_in=STAND_IN
    )
    loaded: Rack | None = None
    rack_faults: list[Diagnostic] = []
    if rack is not None or "rack" not in broken:
        loaded, rack_faults = _load_rack(document, file, rack, path, mock=mock)
    playbook = None
    if file is not None:
        names = RackNames.of(loaded) if loaded is not None else None
        playbook = _Reader(document, file, overrides, names, broken).read(trials, warmup)
    faults = [*document.faults, *overrides.faults, *rack_faults]
    if not faults and playbook is not None and loaded is not None:
        # What is well-formed may still be impossible: only planning it tells.
        for fault in make_plan(playbook, loaded).faults:
            document.fault(fault.place, fault.message, fault.hint)
        faults = document.faults
    if faults:
        raise FileFaults(faults)
    if playbook is None or loaded is None:  # pragma: no cover
        raise InternalError("the playbook has no faults and could not be read")
    return playbook, loaded


def _load_rack(
    document: Document, file: PlaybookFile | None, given: str | None, path: Path, *, mock: bool
) -> tuple[Rack | None, list[Diagnostic]]:
    if file is None and given is None:
        return None, []
    reference = given
    if reference is None and file is not None:
        reference = file.rack
        if reference not in builtin_racks():
            # A path in a playbook is relative to the playbook.
            reference = str(path.parent / reference)
            if not Path(reference).exists():
                document.fault(
                    document.place(("rack",)),
                    f"there is no rack {file.rack!r}",
                    did_you_mean(file.rack, builtin_racks()) + " (paths begin at this file)",
                )
                return None, []
    try:
        return load_rack(str(reference), mock=mock), []
    except FileFaults as faults:
        return None, faults.diagnostics


class _Reader:
    """One reading of one playbook."""

    def __init__(
        self,
        document: Document,
        file: PlaybookFile,
        overrides: Overrides,
        rack: RackNames | None,
        broken: frozenset[str],
    ) -> None:
        self._document = document
        self._file = file
        self._overrides = overrides
        self._rack = rack
        self._broken = broken
        self._specs = task_specs()

    def read(self, trials: int | None, warmup: int | None) -> Playbook | None:
        document, file = self._document, self._file
        variables, sweep = self._variables()
        scopes = self._scopes(variables, sweep)
        places = {n: document.key_place(("sweep", n)) for n in sweep}
        places |= {n: document.key_place(("vars", n)) for n in file.vars}
        names = Names(
            document,
            scopes,
            places,
            swept=tuple(sweep),
            complete=not self._broken & {"vars", "sweep"},
        )
        for name, value in file.vars.items():
            if has_expression(value):
                document.fault(
                    document.place(("vars", name)), "a variable cannot hold an expression",
                    "write the value itself",
                )  # fmt: skip
        reader = StepReader(
            document, names, ArgumentChecker(document, names, self._rack), self._specs
        )
        names.announce(dict(reader.announce(file.tasks, ("tasks",))))
        tasks = reader.read(file.tasks, ("tasks",), within_s=file.deadline)
        always = reader.read(file.always, ("always",)) if file.always else ()
        measures = self._measures(names, (*tasks, *always))
        expect = () if "measures" in self._broken else tuple(self._expectations(measures))
        if not document.faults:
            # A name that stands in a faulty place only would be told twice.
            names.report_unused()
        return Playbook(
            name=file.name,
            source=document.file,
            text=document.text,
            sha256=hashlib.sha256(document.text.encode()).hexdigest(),
            rack=file.rack,
            description=file.description,
            vars=variables,
            sweep=sweep,
            trials=trials or file.trials,
            warmup=file.warmup if warmup is None else warmup,
            tasks=tasks,
            always=always,
            measures=measures,
            expect=expect,
            deadline_s=file.deadline,
        )

    # --- variables -------------------------------------------------------------------------

    def _variables(self) -> tuple[dict[str, Any], dict[str, tuple[Any, ...]]]:
        variables = dict(self._file.vars)
        sweep = {name: tuple(values) for name, values in self._file.sweep.items()}
        for name, value in self._overrides.values.items():
            if name in sweep:
                sweep[name] = tuple(value) if isinstance(value, list) else (value,)
            elif name in variables:
                variables[name] = value
            else:
                self._overrides.unknown(name, [*variables, *sweep])
        return variables, sweep

    def _scopes(
        self, variables: Mapping[str, Any], sweep: Mapping[str, tuple[Any, ...]]
    ) -> tuple[Mapping[str, Any], ...]:
        count = math.prod(len(values) for values in sweep.values())
        if count > MAX_POINTS:
            self._document.fault(
                self._document.key_place(("sweep",)),
                f"the sweep has {count} points; {MAX_POINTS} are allowed",
            )
            return ({**variables, **{n: values[0] for n, values in sweep.items()}},)
        return tuple(
            {**variables, **dict(zip(sweep, values, strict=True))}
            for values in itertools.product(*sweep.values())
        )

    # --- measures and expectations ---------------------------------------------------------

    def _measures(self, names: Names, steps: tuple[AnyStep, ...]) -> dict[str, MeasureSpec]:
        settable = _marks(steps, names.scopes)
        if self._broken & {"tasks", "always"}:
            settable |= {"*"}
        measures = {}
        for name, section in self._file.measures.items():
            path = ("measures", name)
            for key, mark in (("from", section.start), ("to", section.end)):
                if mark is not None and not _can_be_set(mark, settable):
                    self._document.fault(
                        self._document.place((*path, key)),
                        f"no task of this playbook sets the mark {mark!r}",
                        did_you_mean(mark, [m for m in settable if not m.endswith("*")]),
                    )
            if section.value is not None:
                names.compile(section.value, (*path, "value"), bare=True)
            measures[name] = MeasureSpec(
                name=name,
                place=self._document.key_place(path),
                start=section.start,
                end=section.end,
                value=section.value,
                unit=section.unit or ("s" if section.value is None else ""),
            )
        return measures

    def _expectations(self, measures: Mapping[str, MeasureSpec]) -> Iterator[Expectation]:
        for index, text in enumerate(self._file.expect):
            place = self._document.place(("expect", index))
            try:
                parsed = parse_expectation(text)
                measure = measures.get(parsed.measure)
                if measure is None:
                    near = did_you_mean(parsed.measure, measures)
                    raise ValueError(f"there is no measure {parsed.measure!r}; {near}")
                if parsed.statistic not in STATISTICS:
                    near = did_you_mean(parsed.statistic, STATISTICS)
                    raise ValueError(f"there is no statistic {parsed.statistic!r}; {near}")
                limit = parse_limit(parsed.limit, unit=measure.unit, statistic=parsed.statistic)
            except ValueError as error:
                message, _, hint = str(error).partition("; ")
                self._document.fault(place, message, hint)
                continue
            yield Expectation(text, place, parsed.measure, parsed.statistic, parsed.operator, limit)


def _marks(steps: tuple[AnyStep, ...], scopes: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Marks that the tasks may set. A task whose mark is an argument (``mark``) declares ``*``."""
    found: set[str] = set()
    for step in task_steps(steps):
        for mark in step.spec.marks:
            if mark != "*":
                found.add(mark)
                continue
            given = step.args.get("name", "*")
            for scope in scopes if has_expression(given) else ({},):
                try:
                    found.add(str(render(given, scope)))
                except ExpressionError:
                    found.add("*")
    return frozenset(found)


def _can_be_set(mark: str, settable: frozenset[str]) -> bool:
    return any(
        mark == name or (name.endswith("*") and mark.startswith(name[:-1])) for name in settable
    )
