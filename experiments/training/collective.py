"""Time of a ring AllReduce, by the usual formula."""

from __future__ import annotations


def ring_traffic_bytes(size_bytes: float, ranks: int) -> float:
    """Bytes that each rank sends in a ring AllReduce: ``2(n-1)/n`` of the buffer."""
    return 2 * (ranks - 1) / ranks * size_bytes


def ring_latency_s(ranks: int, hop_s: float) -> float:
    """Time that the ``2(n-1)`` messages of a ring AllReduce cost whatever their size."""
    return 2 * (ranks - 1) * hop_s


def ring_allreduce_s(size_bytes: float, ranks: int, rate_bps: float, hop_s: float = 0.0) -> float:
    """Duration of a ring AllReduce over links of which the slowest has ``rate_bps``.

    :param size_bytes: size of the buffer that is summed.
    :param rate_bps: bits per second in the direction of the ring; must be above zero.
    :param hop_s: latency of one message, in seconds.
    """
    traffic_bits = 8 * ring_traffic_bytes(size_bytes, ranks)
    return ring_latency_s(ranks, hop_s) + traffic_bits / rate_bps
