"""One direction of a connection: items arrive in order, each when its delay is over."""

from __future__ import annotations

import math
from collections import deque
from typing import Generic, TypeVar

import trio

from testbed.timing.alarm import Alarm
from testbed.timing.clock import now_s

Item = TypeVar("Item")


class Closed(Exception):
    """The other end has closed the channel, and everything before that has been read."""


class Channel(Generic[Item]):
    """A delayed queue for one reader.

    Waking costs one wake-up an item, at the instant of its arrival. A channel that is neither
    written nor closed any more keeps its reader waiting, as a connection to a host without
    power does.
    """

    def __init__(self) -> None:
        self._items: deque[tuple[float, Item]] = deque()
        self._last_due_s = -math.inf
        self._closed_s = math.inf
        self._reader = Alarm()
        self._closers: list[Alarm] = []

    def put(self, item: Item, delay_s: float = 0.0) -> None:
        """Send an item; what was sent after a close is lost."""
        if self._closed_s < math.inf:
            return
        due_s = self._last_due_s = max(now_s() + delay_s, self._last_due_s)
        self._items.append((due_s, item))
        self._reader.bring_forward(due_s)

    def close(self, delay_s: float = 0.0) -> None:
        """Close after everything that has been sent. A second close does nothing."""
        if self._closed_s < math.inf:
            return
        self._closed_s = due_s = max(now_s() + delay_s, self._last_due_s)
        for alarm in (self._reader, *self._closers):
            alarm.bring_forward(due_s)

    async def get(self) -> Item:
        """The next item, when it has arrived. :raises Closed: after the last one."""
        while True:
            due_s = self._items[0][0] if self._items else self._closed_s
            if due_s <= now_s():
                await trio.lowlevel.checkpoint_if_cancelled()
                if not self._items:
                    raise Closed
                return self._items.popleft()[1]
            await self._reader.wait(due_s)

    async def wait_closed(self) -> None:
        """Return when the close has arrived; items may be left unread."""
        while self._closed_s > now_s():
            alarm = Alarm()
            self._closers.append(alarm)
            try:
                await alarm.wait(self._closed_s)
            finally:
                self._closers.remove(alarm)
