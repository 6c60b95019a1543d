"""Reads a rack file, checks it whole, and reports every fault at its place."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from testbed.errors import InternalError
from testbed.hal.deadlines import OPERATION_DEADLINES_S
from testbed.hal.types import Circuit, OutletState
from testbed.hal.wiring import OutletRef, SwitchPort
from testbed.rack.devices import Devices
from testbed.rack.model import SCHEMA, RackFile
from testbed.rack.rack import Rack, SafeState
from testbed.rack.secrets import ALLOWED, is_literal_secret
from testbed.rack.wiring import WiringReader
from testbed.source.places import Diagnostic, FileFaults, Place
from testbed.source.reader import Document, KeyPath, parse, read_text
from testbed.source.suggest import did_you_mean
from testbed.source.validation import validate_sections

STAND_IN: Mapping[str, Any] = {
    "schema": SCHEMA,
    "name": "unnamed",
    "devices": {"unnamed": {}},
}
"""Values for required sections that are missing or faulty, to check the other sections."""


def builtin_racks() -> tuple[str, ...]:
    """Names of the racks that come with the framework."""
    folder = files("testbed.rack") / "builtin"
    return tuple(
        sorted(p.name[: -len(".yaml")] for p in folder.iterdir() if p.name.endswith(".yaml"))
    )


def load_rack(reference: str, *, mock: bool = False) -> Rack:
    """Read and check a rack.

    :param reference: name of a built-in rack, or path of a rack file.
    :param mock: use the mock twin of every device, whatever the file says.
    :raises FileFaults: with every fault of the file.
    """
    if reference in builtin_racks():
        source = f"builtin:{reference}"
        text = (files("testbed.rack") / "builtin" / f"{reference}.yaml").read_text("utf-8")
    else:
        if "/" not in reference and "." not in reference and not Path(reference).exists():
            message = f"there is no built-in rack {reference!r}"
            hint = did_you_mean(reference, builtin_racks()) + "; or give the path of a rack file"
            raise FileFaults([Diagnostic(Place(reference, 1, 1), message, "", hint)])
        source = reference
        text = read_text(Path(reference))
    document = parse(text, source)
    document.check()
    rack = RackReader(document, mock=mock).read()
    document.check()
    if rack is None:  # pragma: no cover - a fault was reported whenever there is no rack
        raise InternalError("the rack file has no faults and gave no rack")
    return rack


class RackReader:
    """One reading of one document."""

    def __init__(self, document: Document, *, mock: bool) -> None:
        self._document = document
        self._devices = Devices(document, mock=mock)

    def read(self) -> Rack | None:
        """The rack, or ``None`` when the document has got faults."""
        document = self._document
        self._refuse_literal_secrets(document.value, ())
        model, broken = validate_sections(
            RackFile, document.value, document, what="a rack file", stand_in=STAND_IN
        )
        if model is None:
            return None
        if "devices" in broken:
            # The wiring cannot be judged; single devices can.
            raw = document.value.get("devices")
            self._devices.read(raw if isinstance(raw, Mapping) else {})
            return None
        self._devices.read(model.devices)
        wiring = WiringReader(document, self._devices).read(model.wiring)
        safe_state = self._safe_state(model)
        for operation in model.deadlines:
            if operation not in OPERATION_DEADLINES_S:
                document.fault(
                    document.key_place(("deadlines", operation)),
                    f"there is no operation {operation!r}",
                    did_you_mean(operation, OPERATION_DEADLINES_S),
                )
        if "wiring" not in broken:
            self._devices.report_unused()
        if document.faults:
            return None
        return Rack(
            name=model.name,
            source=document.file,
            text=document.text,
            sha256=hashlib.sha256(document.text.encode()).hexdigest(),
            devices=self._devices.entries,
            wiring=wiring,
            safe_state=safe_state,
            deadlines_s=model.deadlines,
            description=model.description,
        )

    def _refuse_literal_secrets(self, value: Any, path: KeyPath) -> None:
        """Before anything else is told about the file, so that no message shows a secret."""
        if isinstance(value, list):
            for index, item in enumerate(value):
                self._refuse_literal_secrets(item, (*path, index))
        if not isinstance(value, Mapping):
            return
        for key, item in value.items():
            if not is_literal_secret(key, item):
                self._refuse_literal_secrets(item, (*path, key))
                continue
            self._document.hidden.add(str(item))
            self._document.fault(
                self._document.place((*path, key)),
                f"{key} must not stand in a rack file",
                f"say where it is: {ALLOWED}",
            )

    def _safe_state(self, model: RackFile) -> SafeState:
        circuits: dict[str, Any] = {}
        for switch, given in model.safe_state.circuits.items():
            path: KeyPath = ("safe_state", "circuits", switch)
            if self._devices.kind(switch) != "switch":
                self._document.fault(
                    self._document.key_place(path),
                    f"there is no switch {switch!r}",
                    did_you_mean(switch, self._devices.named("switch")),
                )
                continue
            if given == "keep":
                circuits[switch] = "keep"
            elif given == "none":
                circuits[switch] = ()
            else:
                circuits[switch] = tuple(self._circuits(switch, given, path))
        outlets: dict[OutletRef, OutletState] = {}
        for text, state in model.safe_state.outlets.items():
            path = ("safe_state", "outlets", text)
            reference = self._devices.reference(text, path, ("power",))
            if reference is not None:
                outlets[OutletRef(*reference)] = state
        return SafeState(circuits, outlets, model.safe_state.processes)

    def _circuits(self, switch: str, given: tuple[str, ...], path: KeyPath) -> Iterator[Circuit]:
        taken: dict[str, str] = {}
        for index, text in enumerate(given):
            here = (*path, index)
            ingress, arrow, egress = (part.strip() for part in text.partition(">"))
            if not arrow:
                self._document.fault(
                    self._document.place(here),
                    f"{text!r} is no circuit",
                    "write ingress>egress, as 1>17",
                )
                continue
            ends = [
                self._devices.reference(f"{switch}.{p}", here, ("switch",))
                for p in (ingress, egress)
            ]
            for end, inward in zip(ends, (True, False), strict=True):
                if end is None or not self._devices.passes(
                    SwitchPort(*end), inward=inward, path=here
                ):
                    continue
                if end[1] in taken:
                    self._document.fault(
                        self._document.place(here),
                        f"port {switch}.{end[1]} is in the circuit {taken[end[1]]} already",
                    )
                taken[end[1]] = text
            if all(ends):
                yield Circuit(ingress, egress)
