"""Every error that a user can meet, with fields, a remedy and an exit code by kind.

Hierarchy::

    TestbedError
    ├── PlaybookError       2   the user's files or arguments (has places)
    ├── RackError           3   the rack as described cannot do what is asked
    ├── DeviceError         3   one device failed
    │   ├── DeviceTimeout       no answer before the deadline
    │   ├── DeviceLost          the connection broke
    │   ├── DeviceRefused       the device, or our own check, said no
    │   ├── ProtocolError       an answer that cannot be understood
    │   └── StateMismatch       read-back differs from what was asked
    ├── LeaseError          4   the rack is held by somebody else
    ├── TaskFailed          3   a task ended without its result (no device to blame)
    │   └── TaskTimeout         it was not done within its deadline
    ├── ExpectationFailed   1   a measure is outside its limit
    ├── StoreError          2   a run cannot be written, found or read
    └── InternalError      70   a defect of ours

Exit codes: DESIGN section 7, item 9.
"""

from __future__ import annotations

from typing import Any, ClassVar

EXIT_OK = 0
EXIT_EXPECTATION = 1
EXIT_USER = 2
EXIT_DEVICE = 3
EXIT_LEASE = 4
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130
EXIT_INTERRUPTED_DIRTY = 131


class TestbedError(Exception):
    """Root of all errors that are shown to the user as one message, without a traceback.

    :param message: what happened, in one sentence.
    :param remedy: what the user can do about it, when there is something.
    :param fields: everything that a program would want to know; stored with the run.
    """

    __test__ = False  # the name must not make pytest collect it
    kind: ClassVar[str] = "error"
    exit_code: ClassVar[int] = EXIT_INTERNAL

    def __init__(self, message: str, *, remedy: str | None = None, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.fields: dict[str, Any] = fields

    def __str__(self) -> str:
        return f"{self.message}\n  remedy: {self.remedy}" if self.remedy else self.message

    def as_record(self) -> dict[str, Any]:
        """The error as JSON-compatible fields, for the event log and ``--format json``."""
        record: dict[str, Any] = {"kind": self.kind, "message": self.message}
        if self.remedy:
            record["remedy"] = self.remedy
        record.update({key: value for key, value in self.fields.items() if value is not None})
        return record


class PlaybookError(TestbedError):
    """A fault in the user's playbook, rack file, variables or arguments.

    ``diagnostics`` holds every fault found, each with its place; the message is all of them.
    """

    kind = "user"
    exit_code = EXIT_USER


class RackError(TestbedError):
    """The rack, as its file describes it, cannot do what was asked."""

    kind = "rack"
    exit_code = EXIT_DEVICE


class TaskFailed(TestbedError):
    """A task ended without its result, and no single device is to blame."""

    kind = "task"
    exit_code = EXIT_DEVICE


class TaskTimeout(TaskFailed):
    """A task, or a block, was not done within its deadline."""

    kind = "task-timeout"


class DeviceError(TestbedError):
    """One device failed at one operation.

    :param device: name of the device in the rack file.
    :param operation: the operation, in the words of the capability (``apply``, ``run``, ...).
    :param deadline_s: time that the operation was given, in seconds.
    :param elapsed_s: time that had passed when it failed, in seconds.
    :param last_state: last state known of the device; ``None`` when unknown.
    """

    kind = "device"
    exit_code = EXIT_DEVICE

    def __init__(
        self,
        message: str,
        *,
        device: str,
        operation: str | None = None,
        deadline_s: float | None = None,
        elapsed_s: float | None = None,
        last_state: str | None = None,
        remedy: str | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(
            message,
            remedy=remedy,
            device=device,
            operation=operation,
            deadline_s=deadline_s,
            elapsed_s=elapsed_s,
            last_state=last_state,
            **fields,
        )
        self.device = device
        self.operation = operation
        self.deadline_s = deadline_s
        self.elapsed_s = elapsed_s
        self.last_state = last_state


class DeviceTimeout(DeviceError):
    """No (complete) answer came before the deadline; the state is unknown until read back."""

    kind = "device-timeout"


class DeviceLost(DeviceError):
    """The connection to the device broke, or could not be made."""

    kind = "device-lost"


class DeviceRefused(DeviceError):
    """The device refused the operation, or a check of ours did before anything was sent."""

    kind = "device-refused"


class ProtocolError(DeviceError):
    """The device answered something that its protocol does not allow."""

    kind = "device-protocol"


class StateMismatch(DeviceError):
    """The state read back is not the state that was asked for."""

    kind = "device-state"


class LeaseError(TestbedError):
    """The rack is held by another run, or the lease was lost."""

    kind = "lease"
    exit_code = EXIT_LEASE


class ExpectationFailed(TestbedError):
    """A measure is outside the limit that the playbook declares."""

    kind = "expectation"
    exit_code = EXIT_EXPECTATION


class StoreError(TestbedError):
    """A stored run cannot be written, found or read; the user's disk or arguments are at fault."""

    kind = "store"
    exit_code = EXIT_USER


class InternalError(TestbedError):
    """A defect of the framework itself."""

    kind = "internal"
    exit_code = EXIT_INTERNAL
