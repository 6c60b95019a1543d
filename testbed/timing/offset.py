"""Offset of a remote host's clock, with a bound of its error.

One exchange asks the remote host for its monotonic time. The host read its clock somewhere
between our sending and our receiving, so the middle is right to within half the round trip; of
several exchanges the fastest one bounds best. Estimated before and after an experiment, the
offset of an instant between them is interpolated, and whatever the offset has changed by between
the two is added to the bound. Everything here is arithmetic; who talks to the host does not matter.

The offset is *remote minus local*: ``local = remote - offset``. All times are in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# The fastest that an operating system slews a clock (adjtime, NTP); quartz alone stays well below.
MAX_DRIFT = 500e-6


@dataclass(frozen=True, slots=True)
class Exchange:
    """One question for the time.

    :param sent_s: our time when the question was sent.
    :param remote_s: the host's time in its answer.
    :param received_s: our time when the answer had come.
    """

    sent_s: float
    remote_s: float
    received_s: float

    def __post_init__(self) -> None:
        if self.received_s < self.sent_s:
            raise ValueError("an answer cannot be received before its question was sent")

    @property
    def rtt_s(self) -> float:
        return self.received_s - self.sent_s


@dataclass(frozen=True, slots=True)
class OffsetEstimate:
    """The offset at one instant.

    :param offset_s: remote time minus local time.
    :param error_s: the true offset is within ``offset_s ± error_s``: half the round trip.
    :param at_s: local time for which it holds.
    """

    offset_s: float
    error_s: float
    at_s: float

    @classmethod
    def of(cls, exchange: Exchange) -> OffsetEstimate:
        middle_s = exchange.sent_s + exchange.rtt_s / 2
        return cls(exchange.remote_s - middle_s, exchange.rtt_s / 2, middle_s)


def estimate_offset(exchanges: Iterable[Exchange]) -> OffsetEstimate:
    """The estimate of the exchange with the shortest round trip.

    :raises ValueError: when there is no exchange.
    """
    fastest = min(exchanges, key=lambda exchange: exchange.rtt_s, default=None)
    if fastest is None:
        raise ValueError("an offset needs at least one exchange")
    return OffsetEstimate.of(fastest)


@dataclass(frozen=True, slots=True)
class MappedInstant:
    """An instant of a remote clock on the local one: within ``local_s ± error_s``."""

    local_s: float
    error_s: float


@dataclass(frozen=True, slots=True)
class ClockMap:
    """Maps instants of one host to local time.

    :param before: estimate from before the experiment.
    :param after: estimate from after it; ``None`` when the host did not live to answer.
    """

    before: OffsetEstimate
    after: OffsetEstimate | None = None

    def __post_init__(self) -> None:
        if self.after is not None and self.after.at_s < self.before.at_s:
            raise ValueError("the estimate after must be later than the estimate before")

    def to_local(self, remote_s: float) -> MappedInstant:
        """Local time of an instant of the host, with its bound.

        Between the estimates the bound is the larger of theirs plus the whole change of the
        offset, which holds however unevenly the clock drifts, as long as it drifts one way.
        Outside of them, and after a host's death, it is that of the nearest estimate plus
        :data:`MAX_DRIFT` for the time in between.
        """
        if self.after is None:
            return _beyond(self.before, remote_s)
        local_s = remote_s - self.before.offset_s
        if local_s <= self.before.at_s:
            return _beyond(self.before, remote_s)
        if remote_s - self.after.offset_s >= self.after.at_s:
            return _beyond(self.after, remote_s)
        change_s = self.after.offset_s - self.before.offset_s
        # Where on the *remote* scale the instant lies between the two estimates.
        start_s = self.before.at_s + self.before.offset_s
        end_s = self.after.at_s + self.after.offset_s
        share = (remote_s - start_s) / (end_s - start_s)
        offset_s = self.before.offset_s + share * change_s
        error_s = max(self.before.error_s, self.after.error_s) + abs(change_s)
        return MappedInstant(remote_s - offset_s, error_s)


def _beyond(nearest: OffsetEstimate, remote_s: float) -> MappedInstant:
    local_s = remote_s - nearest.offset_s
    # The distance is itself uncertain by the error of the offset, and stretched by the drift.
    distance_s = (abs(local_s - nearest.at_s) + nearest.error_s) / (1 - MAX_DRIFT)
    return MappedInstant(local_s, nearest.error_s + MAX_DRIFT * distance_s)
