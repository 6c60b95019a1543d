"""What a program model sees of the simulated host that it runs on.

On a mock rack ``Host.spawn(["testbed-train", ...])`` runs a *model* of that program in the
simulated world. Models are found through the entry-point group ``testbed.programs`` by the
name of the program; they speak the very lines that the real program speaks, so tasks cannot
tell one from the other.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import entry_points
from typing import Protocol, TypeVar

from testbed.hal.types import GpuError

Shared = TypeVar("Shared")


class SimulatedProcess(Protocol):
    """One running process of a simulated host.

    The model is cancelled when the process is killed or the host loses power; what it
    awaited ends there, and its peers learn of it as the world says (see :meth:`on_peer_loss`).
    """

    @property
    def pid(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def argv(self) -> Sequence[str]: ...
    @property
    def rng(self) -> random.Random: ...

    @property
    def stopped(self) -> bool:
        """Whether the process hangs now (``SIGSTOP``, or the fault ``hang``): it neither dies
        nor does anything, so a model whose peers need it must not let them go on. Those who
        asked for :meth:`on_links_changed` are told when this changes, as well."""

    async def emit(self, line: str) -> None:
        """Write one line to standard output. Lost when the host is cut off."""

    async def receive(self) -> str:
        """The next line of standard input. :raises EOFError: when the controller closed it."""

    def shared(self, key: str, make: Callable[[], Shared]) -> Shared:
        """An object shared by all processes of this rack that ask for ``key``: what they
        would agree upon over their own network connections."""

    def link_rate_bps(self, peer: str) -> float:
        """Sum of the rates of all links that carry light both ways between this host and
        ``peer`` now, with carrier on both ends, in bits per second; 0 when there is none."""

    def reachable(self, peer: str) -> bool:
        """Whether ``peer`` has power and is booted, as seen over the management network."""

    def on_peer_loss(
        self, peer_pid: int, peer_host: str, call: Callable[[str], None]
    ) -> Callable[[], None]:
        """Have ``call(reason)`` called when a connection to that process breaks *visibly*:
        ``reset`` when the process dies on a live host that is reachable. A host that loses
        power sends nothing, and a cut fibre neither: then only silence tells. Returns a
        function that ends the watch."""

    def on_links_changed(self, call: Callable[[], None]) -> Callable[[], None]:
        """Have ``call()`` called whenever carriers or circuits of this host change. Returns a
        function that ends the watch."""

    def gpu_errors(self) -> Sequence[GpuError]:
        """Errors of this host's GPUs since boot; a program using a GPU that has one fails."""

    def on_gpu_error(self, call: Callable[[GpuError], None]) -> Callable[[], None]:
        """Have ``call(error)`` called at each new GPU error of this host."""


ProgramModel = Callable[[SimulatedProcess], Awaitable[int]]
"""Runs the program; returns its exit status."""


@functools.cache
def program_model(name: str) -> ProgramModel | None:
    """The installed model of the program of that name, if there is one."""
    for point in entry_points(group="testbed.programs"):
        if point.name == name:
            model: ProgramModel = point.load()
            return model
    return None
