"""The few commands that every simulated host has without a model being installed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from testbed.hal.simulation import SimulatedProcess
from testbed.timing.alarm import sleep

NOT_FOUND = 127
"""Exit status of a shell for a command that does not exist."""

USAGE = 2


async def _true(process: SimulatedProcess) -> int:
    return 0


async def _false(process: SimulatedProcess) -> int:
    return 1


async def _echo(process: SimulatedProcess) -> int:
    await process.emit(" ".join(process.argv[1:]))
    return 0


async def _hostname(process: SimulatedProcess) -> int:
    await process.emit(process.host)
    return 0


async def _sleep(process: SimulatedProcess) -> int:
    try:
        seconds = float(process.argv[1])
    except (IndexError, ValueError):
        return USAGE
    await sleep(seconds)
    return 0


async def _cat(process: SimulatedProcess) -> int:
    while True:
        try:
            line = await process.receive()
        except EOFError:
            return 0
        await process.emit(line)


COMMANDS: Mapping[str, Callable[[SimulatedProcess], Awaitable[int]]] = MappingProxyType(
    {
        "true": _true,
        "false": _false,
        "echo": _echo,
        "hostname": _hostname,
        "sleep": _sleep,
        "cat": _cat,
    }
)
