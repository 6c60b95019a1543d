"""A simulated host: power, boot, interfaces, GPUs and processes."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from devices.hosts.gpu_host import GpuHostOptions
from devices.mock.interface import Interface
from devices.mock.optics import DARK_DBM
from devices.mock.process import Orphan, RunningProcess
from devices.mock.state import Section
from devices.mock.timers import Timer
from testbed.hal.types import Carrier, GpuError, GpuState
from testbed.hal.wiring import Endpoint
from testbed.timing.clock import now_s
from testbed.timing.distribution import Distribution

if TYPE_CHECKING:
    from devices.mock.world import World

FIRST_PID = 1001
IDLE_SHARE = 0.1
"""Share of a GPU's power that it takes without work."""
STANDBY_W = 12.0
"""Taken by a host that is off, for its BMC and power supplies."""
ERRORS_KEPT = 256


class Machine:
    """One host of the world.

    :ivar powered: whether it has power.
    :ivar running: whether its system runs: powered, booted, and not wedged.
    :ivar boots: how often it has booted; connections do not outlive a boot.
    """

    def __init__(self, name: str, options: GpuHostOptions, world: World) -> None:
        self.name = name
        self.options = options
        self.world = world
        self._rng = world.context.rng(f"{name}/host")
        self._program_rng = world.context.rng(f"{name}/programs")
        self.powered = self.running = True
        self.wedged = False
        self.boots = 1
        self.boot_id = self._draw_id()
        self._booted_s = 0.0
        self._ready_s: float | None = None
        self._booting: Timer | None = None
        self._up = trio.Event()
        self._up.set()
        self.interfaces: Mapping[str, Interface] = {
            n: Interface(self, n) for n in options.interfaces
        }
        self._errors: deque[GpuError] = deque(maxlen=ERRORS_KEPT)
        self._next_pid = FIRST_PID
        self.processes: dict[int, RunningProcess] = {}
        self.orphans: dict[int, Orphan] = {}
        self._silenced: list[RunningProcess] = []
        self._link_watchers: dict[int, Callable[[], None]] = {}
        self._error_watchers: dict[int, Callable[[GpuError], None]] = {}
        self._watch_ids = 0

    def draw_s(self, distribution: Distribution) -> float:
        """One duration of this host, in seconds."""
        return distribution.draw_s(self._rng)

    def _draw_id(self) -> str:
        return f"{self._rng.getrandbits(64):016x}"

    # --- power and boot --------------------------------------------------------------------

    def begin(self) -> None:
        """The world starts: bring power and links to where they are, without delay, since
        they were there before."""
        self._booted_s = self._booted_s or now_s()
        if self.world.electricity.powered(self.name) is not self.powered:
            self.power_changed(powered=not self.powered)
        for interface in self.interfaces.values():
            interface.update(at_once=True)

    def power_changed(self, *, powered: bool) -> None:
        """The host has gained or lost power."""
        if powered is self.powered:
            return
        self.powered = powered
        if powered:
            self.wedged = False
            self._boot(self.draw_s(self.options.timing.boot))
        else:
            self._stop()
            if self._booting is not None:
                self._booting.cancel()
            self._booting = self._ready_s = None
        self.world.changed(self.name)

    def wedge(self) -> None:
        """The system dies while the power stays: nothing runs or answers until the next boot."""
        self.wedged = True
        self._stop()
        self.world.changed(self.name)

    def reboot(self) -> None:
        """Boot again, as after a reset."""
        if self.powered:
            self._stop()
            self.wedged = False
            self._boot(self.draw_s(self.options.timing.boot))
            self.world.changed(self.name)

    def _boot(self, delay_s: float) -> None:
        if self._booting is not None:
            self._booting.cancel()
        self._ready_s = now_s() + delay_s
        self._booting = self.world.timers.after(delay_s, self._booted)

    def _booted(self) -> None:
        self._booting = self._ready_s = None
        self.running = True
        self.boots += 1
        self.boot_id = self._draw_id()
        self._booted_s = now_s()
        self._errors.clear()
        self._next_pid = FIRST_PID
        self._up.set()
        for process in self._silenced:
            process.reset_connection()
        self._silenced.clear()
        for interface in self.interfaces.values():
            interface.enabled = True
            interface.changed.unpark_all()
            interface.update()
            self.world.optics.transmitter_changed(interface.endpoint)
        self.world.changed(self.name)

    def _stop(self) -> None:
        """Everything ends at once, without a word to anybody."""
        if self.running:
            self.running = False
            self._up = trio.Event()
        for process in tuple(self.processes.values()):
            process.vanish()
            self._silenced.append(process)
        self.processes.clear()
        self.orphans.clear()
        for interface in self.interfaces.values():
            interface.update()
            self.world.optics.transmitter_changed(interface.endpoint)

    async def until_reachable(self) -> None:
        """Return when the host answers. A dead one answers nothing, so that the caller waits
        until its deadline; one that boots answers when it has booted."""
        while not self.running:
            await self._up.wait()

    @property
    def uptime_s(self) -> float:
        """Since the last boot, in seconds."""
        return now_s() - self._booted_s

    # --- light -----------------------------------------------------------------------------

    def transmitted_dbm(self, endpoint: Endpoint) -> float:
        """Power that an interface sends into its fibre."""
        interface = self.interfaces.get(endpoint.interface)
        lit = interface is not None and interface.transmits
        return self.options.tx_power if lit else DARK_DBM

    def light_changed(self, interface: str) -> None:
        """The light at a receiver may have changed."""
        if interface in self.interfaces:
            self.interfaces[interface].update()

    def set_interface(self, name: str, *, enabled: bool) -> None:
        """Switch an interface on or off."""
        interface = self.interfaces[name]
        if interface.enabled is not enabled:
            interface.enabled = enabled
            interface.update()
            self.world.optics.transmitter_changed(interface.endpoint)
            self.world.changed(self.name)

    def link_rate_bps(self, peer: str) -> float:
        """Sum of the rates of the links to a peer that work both ways now."""
        optics, other = self.world.optics, self.world.machines.get(peer)
        if other is None or other is self:
            return 0.0
        rate = 0.0
        for interface in self.interfaces.values():
            far = optics.far_end(interface.endpoint)
            if (
                far is not None
                and far.host == peer
                and interface.carrier is Carrier.UP
                and other.interfaces[far.interface].carrier is Carrier.UP
                and optics.far_end(far) == interface.endpoint
            ):
                rate += min(self.options.line_rate, other.options.line_rate)
        return rate

    def links_changed(self) -> None:
        """Tell the programs that carriers or circuits of this host have changed."""
        for call in tuple(self._link_watchers.values()):
            call()

    def watch_links(self, call: Callable[[], None]) -> Callable[[], None]:
        """Have ``call()`` called at each change; returns a function that ends the watch."""
        self._watch_ids += 1
        watch = self._watch_ids
        self._link_watchers[watch] = call
        return lambda: self._link_watchers.pop(watch, None) and None

    # --- GPUs ------------------------------------------------------------------------------

    def gpu_error(self, error: GpuError) -> None:
        """A GPU fails."""
        self._errors.append(error)
        for call in tuple(self._error_watchers.values()):
            call(error)

    def watch_errors(self, call: Callable[[GpuError], None]) -> Callable[[], None]:
        """Have ``call(error)`` called at each new error; returns a function that ends it."""
        self._watch_ids += 1
        watch = self._watch_ids
        self._error_watchers[watch] = call
        return lambda: self._error_watchers.pop(watch, None) and None

    @property
    def gpu_errors(self) -> tuple[GpuError, ...]:
        """Errors since boot."""
        return tuple(self._errors)

    def repair_gpus(self) -> None:
        """Forget the errors, as after a change of the card."""
        self._errors.clear()

    @property
    def busy(self) -> bool:
        """Whether a program model runs, and so the GPUs work."""
        return any(process.uses_gpus for process in self.processes.values())

    def gpus(self) -> tuple[GpuState, ...]:
        """State of all GPUs."""
        failed = {error.gpu: error for error in self._errors}
        busy = self.busy
        return tuple(
            GpuState(
                index=index,
                uuid=f"GPU-{self.name}-{index}",
                model=self.options.gpu_model,
                healthy=index not in failed,
                temperature_c=68.0 if busy else 34.0,
                power_w=self._gpu_power_w(busy=busy and index not in failed),
                memory_total_bytes=int(self.options.gpu_memory),
                ecc_uncorrected=int(index in failed and failed[index].xid in (48, 94, 95)),
            )
            for index in range(self.options.gpus)
        )

    def _gpu_power_w(self, *, busy: bool) -> float:
        return self.options.gpu_power * (1.0 if busy else IDLE_SHARE)

    def power_w(self) -> float:
        """What the host draws now, in watts."""
        if not self.powered:
            return STANDBY_W if self.world.electricity.standby(self.name) else 0.0
        busy = self.running and self.busy
        return self.options.idle_power + self.options.gpus * self._gpu_power_w(busy=busy)

    # --- processes -------------------------------------------------------------------------

    def start(self, argv: Sequence[str], tag: str, env: Mapping[str, str]) -> RunningProcess:
        """Start a process."""
        pid, self._next_pid = self._next_pid, self._next_pid + 1
        # Each process has its own generator: what one draws must not depend on the others.
        rng = random.Random(self._program_rng.getrandbits(64))
        process = RunningProcess(self, pid, tuple(argv), tag, env, rng)
        self.processes[pid] = process
        self.world.start_soon(process.run, name=f"{self.name}: {argv[0]}")
        if tag:
            self.world.changed(self.name)
        return process

    def ended(self, process: RunningProcess) -> None:
        """A process has ended by itself or by a signal."""
        if self.processes.pop(process.pid, None) is not None and process.tag:
            self.world.changed(self.name)

    def kill(self, tag: str) -> int:
        """Kill all processes with a tag; returns how many there were."""
        killed = [p for p in self.processes.values() if p.tag == tag]
        for process in killed:
            process.terminate(9)
        orphans = [pid for pid, orphan in self.orphans.items() if orphan.tag == tag]
        for pid in orphans:
            del self.orphans[pid]
        if orphans:
            self.world.changed(self.name)
        return len(killed) + len(orphans)

    def abandon(self) -> None:
        """The session ends: what still runs goes on without a controller."""
        for process in tuple(self.processes.values()):
            self.orphans[process.pid] = Orphan(process.pid, process.argv, process.tag)
            process.vanish()
        self.processes.clear()

    # --- state file ------------------------------------------------------------------------

    def snapshot(self) -> Section:
        """State that outlives the controller."""
        alive = [(p.pid, p.argv, p.tag) for p in self.processes.values() if p.tag]
        alive += [(o.pid, o.argv, o.tag) for o in self.orphans.values() if o.tag]
        return {
            "powered": self.powered,
            "running": self.running,
            "ready_s": self._ready_s,
            "boot_id": self.boot_id,
            "booted_s": self._booted_s,
            "next_pid": self._next_pid,
            "disabled": [n for n, i in self.interfaces.items() if not i.enabled],
            "processes": [{"pid": p, "argv": list(a), "tag": t} for p, a, t in sorted(alive)],
        }

    def restore(self, section: Section) -> None:
        """Take over a state, and go on with a boot that was under way."""
        if section.get("lost-power"):
            self.powered = False
            self._stop()
            return
        self.boot_id, self._booted_s = str(section["boot_id"]), float(section["booted_s"])
        self._next_pid = int(section["next_pid"])
        self.powered = bool(section["powered"])
        for name in section["disabled"]:
            self.interfaces[name].enabled = False
        if not section["running"]:
            self._stop()
            ready_s = section["ready_s"]
            if ready_s is not None:
                # The origin of the clock changes with a reboot of the controller's machine.
                longest_s = self.draw_s(self.options.timing.boot)
                self._boot(min(max(0.0, float(ready_s) - now_s()), longest_s))
            elif self.powered:
                self.wedged = True
        for entry in section["processes"]:
            orphan = Orphan(int(entry["pid"]), tuple(map(str, entry["argv"])), str(entry["tag"]))
            self.orphans[orphan.pid] = orphan
