"""The controller's side of one worker: its process, what it said last, and whether it is lost."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from enum import StrEnum

import trio

from testbed.errors import DeviceError
from testbed.hal.capabilities import Process
from testbed.timing.clock import now_s

from .protocol import Command, Report, encode, parse_report

KILL_WITHIN_S = 1.0
"""Time to have a process killed, its host possibly being gone."""


class Standing(StrEnum):
    """What the controller intends with a worker."""

    MEMBER = "member"
    STANDBY = "standby"
    FAILED = "failed"  # given up after a failure, and fenced
    RETIRED = "retired"  # ended on purpose; its end is no symptom


class Worker:
    """One process of a job.

    :ivar name: ``host/slot``, unique among the living workers of a job.
    :ivar last_heard_s: when the last line arrived, on :func:`testbed.timing.clock.now_s`.
    :ivar ended_s: when its stream ended; ``None`` while it is open.
    :ivar killed: we have killed it, so that its silence says nothing any more.
    :ivar last_words: why it gave up, in its own words, where it said so.
    :ivar generation: the newest process group that it has reported as formed.
    :ivar restored_step: the step of the state that it has reported as restored.
    """

    def __init__(self, host: str, slot: int, process: Process, standing: Standing) -> None:
        self.host = host
        self.slot = slot
        self.process = process
        self.standing = standing
        self.ready = False
        self.generation = 0
        self.restored_step: int | None = None
        self.last_heard_s = now_s()
        self.ended_s: float | None = None
        self.killed = False
        self.end_reason = ""
        self.last_words = ""

    @property
    def name(self) -> str:
        return f"{self.host}/{self.slot}"

    @property
    def alive(self) -> bool:
        """Whether it may be expected to obey: its stream is open and it was not given up."""
        return self.ended_s is None and self.standing in (Standing.MEMBER, Standing.STANDBY)

    async def reports(self) -> AsyncIterator[Report]:
        """Its reports until the stream ends. :raises ProtocolError: for a line that is none."""
        async for line in self.process.lines():
            self.last_heard_s = now_s()
            yield parse_report(line, device=self.host)

    async def why_ended(self) -> str:
        """For people: how the process ended, asked after its stream did."""
        with trio.move_on_after(KILL_WITHIN_S):
            try:
                status = await self.process.wait()
            except DeviceError as error:
                return f"connection to {self.host} lost: {error.message}"
            if status < 0:
                return f"process {self.process.pid} on {self.host} killed by signal {-status}"
            return f"process {self.process.pid} on {self.host} exited with status {status}"
        return f"stream of process {self.process.pid} on {self.host} ended, its process did not"

    async def send(self, command: Command) -> None:
        """Send a command. :raises DeviceError: when the connection is gone."""
        await self.process.send_line(encode(command))

    async def kill(self) -> bool:
        """Kill the process; false when that could not be confirmed, which is not an error:
        a host without power answers nothing, and needs no killing."""
        if self.ended_s is not None:
            return True
        with trio.move_on_after(KILL_WITHIN_S):
            try:
                await self.process.signal(signal.SIGKILL)
            except DeviceError:
                return False
            self.killed = True
            return True
        return False
