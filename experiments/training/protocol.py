"""The line protocol between the controller and a worker of a training job.

One JSON object a line over the standard input and output of the worker's process. Commands go
to the worker, reports come back; each report carries ``t``, the worker's own monotonic time in
seconds. A worker must send *something* at least every heartbeat interval once it is ready, so
``heartbeat`` is sent only when nothing else was. The stream belongs to the protocol: a program
that prints other things must do so on standard error.

The simulated program (:mod:`experiments.training.model`) and a real one speak the same lines,
and nothing on the controller's side can tell which of them it talks to.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from testbed.errors import ProtocolError

_read_json = json.JSONDecoder().raw_decode
_COMPACT = json.JSONEncoder(separators=(",", ":"))
MAX_LINE = 65_536
"""Longest line that is read, in characters."""

RestoreSource = Literal["peer", "checkpoint", "initial"]


@dataclass(frozen=True, slots=True)
class Form:
    """Form the process group of a generation; whatever group there was before is abandoned.

    :param generation: counts up from 1; a report of an older one is out of date.
    :param rank: the rank of the worker that this is sent to.
    :param members: ``host/slot`` of all workers by rank.
    """

    kind: ClassVar[str] = "form"
    generation: int
    rank: int
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Restore:
    """Get model and optimizer state as of ``step``.

    :param source: ``peer`` copies it from the worker ``peer`` over the data network,
        ``checkpoint`` reads it from storage, ``initial`` keeps what was loaded at the start.
    :param readers: how many workers read from storage at the same time.
    """

    kind: ClassVar[str] = "restore"
    source: str
    step: int
    peer: str = ""
    readers: int = 1


@dataclass(frozen=True, slots=True)
class Start:
    """Train from the step after ``step`` on, in the group of ``generation``."""

    kind: ClassVar[str] = "start"
    generation: int
    step: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Write a checkpoint after the step that is under way. Sent to rank 0."""

    kind: ClassVar[str] = "checkpoint"


@dataclass(frozen=True, slots=True)
class Stop:
    """Say ``bye`` and exit with status 0."""

    kind: ClassVar[str] = "stop"


@dataclass(frozen=True, slots=True)
class Ping:
    """Answer with a ``pong`` of the same number at once."""

    kind: ClassVar[str] = "ping"
    number: int


Command = Form | Restore | Start | Checkpoint | Stop | Ping


@dataclass(frozen=True, slots=True)
class Ready:
    """Imports and initial weights are in place; commands will be obeyed."""

    kind: ClassVar[str] = "ready"
    t: float


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Alive, and nothing else to say."""

    kind: ClassVar[str] = "heartbeat"
    t: float


@dataclass(frozen=True, slots=True)
class Formed:
    """The process group of that generation is ready at this rank."""

    kind: ClassVar[str] = "formed"
    t: float
    generation: int


@dataclass(frozen=True, slots=True)
class Restored:
    """State as of ``step`` is in place; ``size`` bytes were moved."""

    kind: ClassVar[str] = "restored"
    t: float
    step: int
    size: int


@dataclass(frozen=True, slots=True)
class StepDone:
    """Rank 0: step ``n`` is finished on all ranks.

    :param compute_s: until the slowest rank had its gradients, in seconds.
    :param communication_s: in the collective, in seconds.
    :param traffic: bytes that each rank sent in the collective.
    """

    kind: ClassVar[str] = "step"
    t: float
    generation: int
    n: int
    loss: float
    tokens: int
    compute_s: float
    communication_s: float
    traffic: int


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """Rank 0: the checkpoint of ``step`` is written and can be restored."""

    kind: ClassVar[str] = "checkpointed"
    t: float
    step: int


@dataclass(frozen=True, slots=True)
class PeerLost:
    """The collective broke.

    :param peer: ``host/slot`` of the lost worker, empty when the worker cannot tell which.
    :param reason: ``reset`` when a connection broke, ``timeout`` when the collective did not
        finish in its time.
    """

    kind: ClassVar[str] = "peer-lost"
    t: float
    generation: int
    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class GpuFault:
    """A GPU that this worker uses had an error."""

    kind: ClassVar[str] = "gpu-error"
    t: float
    gpu: int
    xid: int
    message: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker cannot go on, and exits."""

    kind: ClassVar[str] = "failed"
    t: float
    reason: str


@dataclass(frozen=True, slots=True)
class Pong:
    """Answer to ``ping``."""

    kind: ClassVar[str] = "pong"
    t: float
    number: int


@dataclass(frozen=True, slots=True)
class Bye:
    """Stopped on command; the last line."""

    kind: ClassVar[str] = "bye"
    t: float


Report = (
    Ready
    | Heartbeat
    | Formed
    | Restored
    | StepDone
    | Checkpointed
    | PeerLost
    | GpuFault
    | Failed
    | Pong
    | Bye
)
Message = TypeVar("Message", Command, Report)


def _number(value: Any) -> float | None:
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            return None
    return value if type(value) is float and math.isfinite(value) else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**63 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _texts(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    return None


# Annotations are texts (``from __future__ import annotations``); these are all that occur.
_READERS = {"float": _number, "int": _count, "str": _text, "tuple[str, ...]": _texts}


def _table(*kinds: Any) -> dict[str, tuple[Any, tuple[tuple[str, Any, Any], ...]]]:
    return {
        kind.kind: (
            kind,
            tuple((f.name, _READERS[str(f.type)], f.default) for f in dataclasses.fields(kind)),
        )
        for kind in kinds
    }


_COMMANDS = _table(Form, Restore, Start, Checkpoint, Stop, Ping)
_REPORTS = _table(
    Ready,
    Heartbeat,
    Formed,
    Restored,
    StepDone,
    Checkpointed,
    PeerLost,
    GpuFault,
    Failed,
    Pong,
    Bye,
)


def _number_text(value: float) -> str:
    return repr(value) if type(value) in (float, int) else _COMPACT.encode(value)


# Ninety lines are written in a trial: what is the same in each of a kind is made once.
_WRITERS = {"float": _number_text, "int": _number_text}
_FORMS = {
    make: (
        f'{{"kind":"{kind}"',
        tuple(
            (f',"{f.name}":', f.name, _WRITERS.get(str(f.type), _COMPACT.encode))
            for f in dataclasses.fields(make)
        ),
    )
    for table in (_COMMANDS, _REPORTS)
    for kind, (make, _) in table.items()
}


def encode(message: Command | Report) -> str:
    """The message as one line, without its end."""
    line, fields = _FORMS[type(message)]
    for key, name, write in fields:
        line += key + write(getattr(message, name))
    return line + "}"


def parse_report(line: str, *, device: str) -> Report:
    """Read a line of a worker. :raises ProtocolError: naming the device, for anything else."""
    report: Report = _parse(line, _REPORTS, device)
    return report


def parse_command(line: str, *, device: str = "controller") -> Command:
    """Read a line of the controller. :raises ProtocolError: for anything else."""
    command: Command = _parse(line, _COMMANDS, device)
    return command


def _parse(line: str, table: dict[str, Any], device: str) -> Any:
    if len(line) > MAX_LINE:
        raise _garbage(f"a line of {len(line)} characters", line, device)
    try:
        record, end = _read_json(line) if line.startswith("{") else (None, -1)
        if end != len(line):
            record = json.loads(line)  # with white space around it, or worse
    except (ValueError, RecursionError):
        raise _garbage("a line that is no JSON", line, device) from None
    if not isinstance(record, dict):
        raise _garbage("a line that is no JSON object", line, device)
    kind = record.pop("kind", None)
    entry = table.get(kind) if isinstance(kind, str) else None
    if entry is None:
        raise _garbage(f"an unknown kind of message ({kind!r:.40})", line, device)
    make, fields = entry
    values = []
    for name, read, default in fields:
        found = record.pop(name, default)
        if found is dataclasses.MISSING:
            raise _garbage(f"a {kind} message without {name}", line, device)
        value = read(found)
        if value is None:
            raise _garbage(f"a {kind} message with a bad {name}", line, device)
        values.append(value)
    if record:
        raise _garbage(f"a {kind} message with unknown {next(iter(record))!r:.40}", line, device)
    return make(*values)


def _garbage(what: str, line: str, device: str) -> ProtocolError:
    return ProtocolError(
        f"{device} sent {what}: {line[:120]!r}",
        device=device,
        operation="line protocol",
        remedy="standard output of a worker carries its protocol only; print to standard error",
        line=line[:1000],
    )
