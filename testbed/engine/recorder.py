"""Where events of a run go: to its log, and to whoever watches."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence

from testbed.errors import InternalError, StoreError, TestbedError
from testbed.store.events import LOG, Event
from testbed.store.writer import RunWriter

Observer = Callable[[Event], None]


class Recorder:
    """The sink of a run's timeline.

    A disk that fails must stop the run, and must not stop its cleanup: marks and events are
    written from everywhere, and none of those places could do anything about it. So the first
    failure is kept in :attr:`broken`, later events are dropped, and ``on_broken`` is called.
    """

    def __init__(self, writer: RunWriter, observers: Sequence[Observer] = ()) -> None:
        self.writer = writer
        self.broken: StoreError | None = None
        self.on_broken: Callable[[], None] = lambda: None
        self.last_t = 0.0
        self._observers = list(observers)
        self._defects = 0

    def __call__(self, event: Event) -> None:
        """Write one event and pass it on."""
        self.last_t = max(self.last_t, event["t"])
        if self.broken is None:
            try:
                self.writer.append(event)
            except StoreError as error:
                self._break(error)
        self.tell(event)

    def tell(self, event: Event) -> None:
        """Pass an event on to whoever watches, without writing it."""
        for observer in tuple(self._observers):
            try:
                observer(event)
            except Exception as error:
                # A progress display must not be able to leave devices behind.
                self._observers.remove(observer)
                self({"t": self.last_t, "kind": LOG, "message": f"an observer broke: {error!r}"})

    def sync(self) -> None:
        """Return when all events so far are durable, or it is known why they cannot be."""
        if self.broken is None:
            try:
                self.writer.sync()
            except StoreError as error:
                self._break(error)

    def artefact(self, name: str, text: str) -> str:
        """Store a text with the run; returns its path relative to the run's folder."""
        return self.writer.artefact(name, text)

    def as_testbed_error(self, error: BaseException) -> TestbedError:
        """The error as one of ours. What is not one is a defect, of which the traceback is kept.

        Of a group, the first is told and the others are listed with it.
        """
        if isinstance(error, TestbedError) and not isinstance(error, InternalError):
            return error
        if isinstance(error, BaseExceptionGroup):
            leaves = _leaves(error)
            ours = [leaf for leaf in leaves if isinstance(leaf, TestbedError)]
            if ours and len(ours) == len(leaves):
                if ours[1:]:
                    ours[0].fields["also"] = [leaf.as_record() for leaf in ours[1:]]
                return ours[0]
        defect = (
            error
            if isinstance(error, InternalError)
            else InternalError(f"{type(error).__name__}: {error}")
        )
        if "traceback" not in defect.fields:
            self._defects += 1
            text = "".join(traceback.format_exception(error))
            try:
                defect.fields["traceback"] = self.artefact(f"defect-{self._defects}.txt", text)
            except StoreError:
                defect.fields["traceback"] = text
            defect.remedy = defect.remedy or "report this, with the file named by `traceback`"
        return defect

    def _break(self, error: StoreError) -> None:
        self.broken = error
        self.on_broken()


def _leaves(group: BaseExceptionGroup[BaseException]) -> Sequence[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
