"""Events that can befall a simulated host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from devices.mock.process import RunningProcess
from testbed.hal.types import FaultSpec, GpuError

if TYPE_CHECKING:
    from devices.mock.gpu_host import MockGpuHost

EVENTS: Mapping[str, str] = MappingProxyType(
    {
        "process-kill": "SIGKILL to the processes that were started here; `target`: a tag, a "
        "program or a pid",
        "process-hang": "SIGSTOP to them: they neither die nor do anything",
        "gpu-xid": "a GPU fails with an XID; `target`: its index (0), `xid` (79)",
        "power-off": "all outlets that feed the host go off, or its power supply fails",
        "power-on": "the outlets that feed the host, or its power supply, go on again",
        "dead": "the system dies while its power stays; nothing runs or answers until a reboot",
        "reboot": "the host boots again by itself",
        "nic-down": "a data interface is switched off; `target`: its name (all of them)",
        "fibre-cut": "both fibres of an interface are cut; `target`: its name (all of them); "
        "`direction: tx` or `rx` cuts one",
    }
)

XID_MESSAGES: Mapping[int, str] = MappingProxyType(
    {
        13: "graphics engine exception",
        31: "memory page fault",
        48: "double-bit ECC error",
        63: "row remapping recorded",
        64: "row remapping failed",
        74: "NVLink error",
        79: "GPU has fallen off the bus",
        94: "contained ECC error",
        95: "uncontained ECC error",
        119: "GSP timeout",
    }
)
DEFAULT_XID = 79


def host_event(host: MockGpuHost, fault: FaultSpec) -> Callable[[], None]:
    """Check the fault and return what makes it happen. :raises DeviceRefused: if it cannot."""
    match fault.kind:
        case "process-kill":
            return _on_processes(host, fault, lambda process: process.terminate(9))
        case "process-hang":
            return _on_processes(host, fault, RunningProcess.stop)
        case "gpu-xid":
            return _gpu_xid(host, fault)
        case "power-off" | "power-on":
            return _power(host, on=fault.kind == "power-on")
        case "dead":
            return _dead(host)
        case "reboot":
            return host.machine.reboot
        case "nic-down":
            return _nic_down(host, fault)
        case _:
            return _fibre_cut(host, fault)


def _on_processes(
    host: MockGpuHost, fault: FaultSpec, do: Callable[[RunningProcess], None]
) -> Callable[[], None]:
    def hit() -> list[RunningProcess]:
        return [
            p
            for p in host.machine.processes.values()
            if (p.tag if fault.target is None else fault.target in (p.tag, p.argv[0], str(p.pid)))
        ]

    scheduled = "after_s" in fault.params or "on" in fault.params
    if not scheduled and not hit():
        which = "process" if fault.target is None else f"process {fault.target!r}"
        raise host.no_fault(f"no {which} runs here that could be hit")

    def happen() -> None:
        for process in hit():
            do(process)
            if fault.kind == "process-hang":
                host.repair_by(f"hang {process.pid}", process.go_on)

    return happen


def _gpu_xid(host: MockGpuHost, fault: FaultSpec) -> Callable[[], None]:
    count = host.options.gpus
    target = "0" if fault.target is None else fault.target
    if not target.isdecimal() or int(target) >= count:
        raise host.no_fault(f"there is no GPU {target}; it has {count}")
    xid = int(fault.params.get("xid", DEFAULT_XID))

    def happen() -> None:
        message = XID_MESSAGES.get(xid, "unknown error")
        host.machine.gpu_error(GpuError(int(target), xid, message, host.machine.uptime_s))
        host.repair_by("gpu", host.machine.repair_gpus)

    return happen


def _power(host: MockGpuHost, *, on: bool) -> Callable[[], None]:
    electricity = host.world.electricity
    feeds = electricity.feeds(host.name)

    def switch(state: bool) -> None:
        for feed in feeds:
            electricity.set(feed, on=state)
            host.world.changed_if_known(feed.controller)
        if not feeds:
            electricity.fail_supply(host.name, failed=not state)

    def happen() -> None:
        switch(on)
        if not on:
            host.repair_by("power", lambda: switch(True))

    return happen


def _dead(host: MockGpuHost) -> Callable[[], None]:
    def mend() -> None:
        if host.machine.wedged:
            host.machine.reboot()

    def happen() -> None:
        host.machine.wedge()
        host.repair_by("dead", mend)

    return happen


def _interfaces(host: MockGpuHost, fault: FaultSpec) -> tuple[str, ...]:
    known = tuple(host.machine.interfaces)
    if fault.target is None:
        return known
    if fault.target not in known:
        raise host.no_fault(
            f"there is no interface {fault.target}", remedy=f"its interfaces are {', '.join(known)}"
        )
    return (fault.target,)


def _nic_down(host: MockGpuHost, fault: FaultSpec) -> Callable[[], None]:
    names = _interfaces(host, fault)

    def switch(enabled: bool) -> None:
        for name in names:
            host.machine.set_interface(name, enabled=enabled)

    def happen() -> None:
        switch(False)
        host.repair_by(f"nic {','.join(names)}", lambda: switch(True))

    return happen


def _fibre_cut(host: MockGpuHost, fault: FaultSpec) -> Callable[[], None]:
    optics = host.world.optics
    direction = fault.params.get("direction", "both")
    if direction not in ("tx", "rx", "both"):
        raise host.no_fault(f"direction is tx, rx or both, and not {direction!r}")
    fibres = [
        fibre
        for name in _interfaces(host, fault)
        for fibre in optics.fibres_of(host.machine.interfaces[name].endpoint)
        if direction in ("both", "tx" if fibre.transmits else "rx")
    ]
    if not fibres:
        raise host.no_fault("no fibre is plugged in there")

    def happen() -> None:
        for fibre in fibres:
            optics.cut(fibre, cut=True)

    def mend() -> None:
        for fibre in fibres:
            optics.cut(fibre, cut=False)

    def cut() -> None:
        happen()
        host.repair_by(f"fibres {fault.target} {direction}", mend)

    return cut
