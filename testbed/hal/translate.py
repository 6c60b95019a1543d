"""What the exceptions of a synchronous driver mean.

====================================================  ==========================================
``DeviceError``                                       itself, with device and operation filled in
``TimeoutError``                                      ``DeviceTimeout``
``ConnectionError``, ``EOFError``, other ``OSError``  ``DeviceLost``
``ValueError``, ``LookupError``                       ``ProtocolError``: what an answer that
                                                      cannot be understood makes of a parser
anything else                                         ``InternalError``: a defect of the driver
====================================================  ==========================================
"""

from __future__ import annotations

from testbed.errors import (
    DeviceError,
    DeviceLost,
    DeviceTimeout,
    InternalError,
    ProtocolError,
    TestbedError,
)


def translate(
    error: BaseException,
    *,
    device: str,
    operation: str,
    elapsed_s: float,
    last_state: str | None,
) -> TestbedError:
    """An exception of a driver as one of ours; one of ours is returned itself.

    :param operation: what was going on; ``open`` stands for connecting.
    """
    if isinstance(error, DeviceError):
        for name, value in (("operation", operation), ("elapsed_s", elapsed_s)):
            if getattr(error, name) is None:
                setattr(error, name, value)
                error.fields[name] = value
        return error
    told = str(error) or type(error).__name__
    kind: type[DeviceError]
    match error:
        case TimeoutError():
            kind, what = DeviceTimeout, f"{operation} was not answered in time"
        case EOFError() | OSError():
            kind = DeviceLost
            what = "cannot connect" if operation == "open" else f"connection lost at {operation}"
        case ValueError() | LookupError():
            kind, what = ProtocolError, f"{operation} was answered by what it must not be"
        case _:
            return InternalError(
                f"driver of {device} failed at {operation}: {type(error).__name__}: {told}",
                device=device,
                operation=operation,
                remedy="this is a defect of the driver; --debug shows where",
            )
    return kind(
        f"device {device}: {what}: {told}",
        device=device,
        operation=operation,
        elapsed_s=elapsed_s,
        last_state=last_state,
    )
