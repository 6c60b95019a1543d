"""Names of a playbook: what is declared, what is used, what is known before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from testbed.playbook.expressions import (
    Compiled,
    ExpressionError,
    Scope,
    expression,
    template,
)
from testbed.source.places import Place
from testbed.source.reader import Document, KeyPath
from testbed.source.suggest import did_you_mean

BUILTIN = frozenset({"trial", "run_id", "rack_name"})
"""Names that the engine gives: number of the trial, id of the run, name of the rack."""

FAILURE = "failure"
"""In a ``rescue``, the failure that it is for, with ``kind`` and ``message``."""

RESULT_FIELDS = frozenset({"ok", "status", "elapsed_s", "error", "attempts", "results"})
"""Fields that every registered result has beside those of its task; ``results`` with a loop."""


_WHERE = {
    "item": "it is there in a task with loop",
    FAILURE: "it is there in a rescue",
}
"""Names that exist in some places only."""


@dataclass
class Names:
    """Declarations of one playbook, and their uses.

    :ivar scopes: per sweep point, the values of the variables.
    :ivar swept: names of the variables that differ between the points.
    :ivar complete: whether all variables are known; they are not when their section has faults.
    :ivar in_rescue: whether the steps being read belong to a ``rescue``.
    """

    document: Document
    scopes: tuple[Scope, ...]
    variables: dict[str, Place]
    registered: dict[str, tuple[Place, frozenset[str] | None]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    swept: tuple[str, ...] = ()
    complete: bool = True
    in_rescue: bool = False
    _coming: dict[str, Place] = field(default_factory=dict)

    def announce(self, names: Mapping[str, Place]) -> None:
        """Names that will be registered somewhere, for better messages about using them early."""
        self._coming.update(names)

    def register(self, name: str, place: Place, fields: Iterable[str] | None) -> None:
        """Declare a registered result; ``None`` for fields that cannot be known."""
        known = None if fields is None else frozenset(fields) | RESULT_FIELDS
        before = self.registered.get(name)
        if before is not None and known is not None and before[1] is not None:
            known |= before[1]
        self.registered[name] = (place, known)
        if name in self.variables or name in BUILTIN | {"item", FAILURE}:
            self.document.fault(
                place, f"{name!r} is the name of a variable already", "register another name"
            )

    def compile(
        self, text: str, path: KeyPath, *, bare: bool, local: Iterable[str] = ()
    ) -> Compiled | None:
        """Compile and check the names; faults go to the document."""
        place = self.document.place(path)
        try:
            compiled = expression(text) if bare else template(text)
        except ExpressionError as error:
            message, _, hint = error.message.partition("; ")
            self.document.fault(place, f"not a valid expression: {message}", hint)
            return None
        fine = True
        given = BUILTIN | {FAILURE} if self.in_rescue else BUILTIN
        for name in sorted(compiled.names - set(local) - given):
            self.used.add(name)
            if name in self.variables or name in self.registered or not self.complete:
                continue
            fine = False
            if name in self._coming:
                self.document.fault(
                    place,
                    f"{name!r} is registered later, in line {self._coming[name].line}",
                    "use it after the task that registers it",
                )
                continue
            self.document.fault(
                place,
                f"there is no name {name!r}",
                _WHERE.get(name)
                or did_you_mean(name, [*self.variables, *self.registered, *given, *local]),
            )
        for name, attribute in sorted(compiled.fields):
            fields = self.registered.get(name, (place, None))[1]
            if fields is not None and attribute not in fields:
                fine = False
                self.document.fault(
                    place,
                    f"the result {name!r} has no field {attribute!r}",
                    did_you_mean(attribute, fields),
                )
        return compiled if fine else None

    def is_known(self, compiled: Compiled, known_local: Iterable[str] = ()) -> bool:
        """Whether it can be evaluated before anything runs."""
        return all(n in self.variables or n in set(known_local) for n in compiled.names)

    def report_unused(self) -> None:
        """Faults for names that are declared and never used."""
        for name, place in self.variables.items():
            if name not in self.used:
                self.document.fault(
                    place, f"variable {name!r} is never used", "use it or remove it"
                )
        for name, (place, _) in self.registered.items():
            if name not in self.used:
                self.document.fault(
                    place, f"the result {name!r} is registered and never used", "remove register"
                )
