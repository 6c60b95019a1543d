"""The devices of a rack file, and references to them and to their parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.hal.registry import DriverSpec, driver, driver_names
from testbed.hal.types import Backend, PortDirection
from testbed.hal.wiring import SwitchPort
from testbed.rack.model import DeviceSection
from testbed.rack.rack import DeviceEntry
from testbed.rack.secrets import is_literal_secret
from testbed.source.reader import Document, KeyPath
from testbed.source.suggest import did_you_mean
from testbed.source.validation import validate


class Devices:
    """Devices as far as they have no faults.

    :ivar entries: by name, in the order of the file.
    :ivar used: names of those that the wiring refers to.
    """

    def __init__(self, document: Document, *, mock: bool) -> None:
        self.entries: dict[str, DeviceEntry] = {}
        self.used: set[str] = set()
        self._document = document
        self._mock = mock

    def read(self, sections: Mapping[str, Any]) -> None:
        """Read the section ``devices``, each device with the model of its driver."""
        for name, section in sections.items():
            path: KeyPath = ("devices", name)
            if not isinstance(section, Mapping):
                self._document.fault(
                    self._document.place(path), f"device {name} must be a mapping with a driver"
                )
                continue
            entry = self._device(name, section, path)
            if entry is not None:
                self.entries[name] = entry

    def _device(self, name: str, section: Mapping[str, Any], path: KeyPath) -> DeviceEntry | None:
        document = self._document
        head = {k: section[k] for k in ("driver", "backend") if k in section}
        common = validate(DeviceSection, head, document, path, what=f"device {name}")
        if common is None:
            return None
        try:
            spec = driver(common.driver)
        except KeyError:
            document.fault(
                document.place((*path, "driver")),
                f"there is no driver {common.driver!r}",
                did_you_mean(common.driver, driver_names()),
            )
            return None
        backend = self._backend(name, spec, common, path)
        own = {
            key: value
            for key, value in section.items()
            if key not in ("driver", "backend") and not is_literal_secret(key, value)
        }
        options = validate(spec.options, own, document, path, what=f"device {name} ({spec.name})")
        if options is None or backend is None:
            return None
        return DeviceEntry(name, spec, backend, options)

    def _backend(
        self, name: str, spec: DriverSpec, common: DeviceSection, path: KeyPath
    ) -> Backend | None:
        backend = Backend.MOCK if self._mock else common.backend
        if backend in spec.backends:
            return backend
        offered = ", ".join(spec.backends)
        self._document.fault(
            self._document.place((*path, "backend")),
            f"device {name}: driver {spec.name} has no {backend} backend",
            f"write backend: {offered}" if len(spec.backends) == 1 else f"it offers {offered}",
        )
        return None

    def report_unused(self) -> None:
        """Faults for devices that nothing is wired to. A device that says which host it sits in
        (a BMC) needs no wire: its host has to exist instead."""
        for name, entry in self.entries.items():
            hosted = getattr(entry.options, "host", None)
            if name not in self.used and hosted is None:
                self._document.fault(
                    self._document.key_place(("devices", name)),
                    f"device {name} is declared but nothing is wired to it",
                    "wire it under wiring, or remove it",
                )
            if hosted is not None and self.kind(hosted) != "host":
                self._document.fault(
                    self._document.place(("devices", name, "host")),
                    f"device {name}: there is no host {hosted!r}",
                    did_you_mean(hosted, self.named("host")),
                )

    def kind(self, name: str) -> str | None:
        """``switch``, ``host`` or ``power``; ``None`` for what is no (faultless) device."""
        entry = self.entries.get(name)
        return None if entry is None else entry.driver.kind

    def named(self, kind: str) -> list[str]:
        """Names of the devices of a kind."""
        return [n for n, d in self.entries.items() if d.driver.kind == kind]

    # --- references ------------------------------------------------------------------------

    def reference(self, text: str, path: KeyPath, kinds: tuple[str, ...]) -> tuple[str, str] | None:
        """Read ``device.part``; ``None`` with a fault unless the device exists, is of one of the
        kinds, and has that part."""
        place = self._document.place(path)
        device, dot, part = text.partition(".")
        if not dot or not part:
            forms = " or ".join({"host": "host.interface", "switch": "switch.port",
                                 "power": "controller.outlet"}[k] for k in kinds)  # fmt: skip
            self._document.fault(place, f"{text!r} names no part of a device", f"write {forms}")
            return None
        kind = self.kind(device)
        if kind not in kinds:
            if kind is not None:
                self._document.fault(
                    place, f"{device} is a {kind}, and a {' or '.join(kinds)} belongs here"
                )
            elif device not in self._document.value.get("devices", {}):
                known = [n for k in kinds for n in self.named(k)]
                self._document.fault(
                    place, f"there is no device {device!r}", did_you_mean(device, known)
                )
            return None
        self.used.add(device)
        parts = self._parts(device)
        if parts is not None and part not in parts:
            what = {"host": "interface", "switch": "port", "power": "outlet"}[kind or ""]
            self._document.fault(
                place, f"{device} has no {what} {part!r}", did_you_mean(part, parts)
            )
            return None
        return device, part

    def passes(self, port: SwitchPort, *, inward: bool, path: KeyPath) -> bool:
        """Whether light can go that way through a port; not knowing counts as yes."""
        ports = getattr(self.entries[port.switch].options, "port_map", None)
        info = ports.get(port.port) if isinstance(ports, Mapping) else None
        direction = getattr(info, "direction", PortDirection.BOTH)
        if direction is (PortDirection.EGRESS if inward else PortDirection.INGRESS):
            way = "enter" if inward else "leave"
            self._document.fault(
                self._document.place(path),
                f"no light can {way} at port {port}: it is for {direction} only",
            )
            return False
        return True

    def _parts(self, device: str) -> list[str] | None:
        options = self.entries[device].options
        for attribute in ("interfaces", "port_map", "outlets"):
            found = getattr(options, attribute, None)
            if found is not None:
                return [str(part) for part in found]
        return None
