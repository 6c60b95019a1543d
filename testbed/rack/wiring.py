"""The wiring of a rack file: fibres and feeds whose both ends exist and are free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from testbed.hal.wiring import Endpoint, Feed, Fibre, OutletRef, SwitchPort, Wiring
from testbed.rack.devices import Devices
from testbed.rack.model import WiringSection
from testbed.source.places import Place
from testbed.source.reader import Document, KeyPath
from testbed.source.suggest import did_you_mean


class WiringReader:
    """One reading of the section ``wiring``."""

    def __init__(self, document: Document, devices: Devices) -> None:
        self._document = document
        self._devices = devices

    def read(self, section: WiringSection) -> Wiring:
        """The wiring, without what has faults."""
        fibres: list[Fibre] = []
        taken: dict[object, Place] = {}
        for fibre, path in self._strands(section):
            place = self._document.place(path)
            direction = "transmitter" if fibre.transmits else "receiver"
            for key, what in (
                (fibre.switch_port, f"port {fibre.switch_port}"),
                ((fibre.endpoint, fibre.transmits), f"the {direction} of {fibre.endpoint}"),
            ):
                if key in taken:
                    self._document.fault(
                        place, f"{what} has a fibre already, in line {taken[key].line}"
                    )
                taken[key] = place
            fibres.append(fibre)
        self._both_ways(fibres, taken)
        feeds = list(self._feeds(section))
        fed = {feed.host for feed in feeds}
        self._devices.used |= fed
        return Wiring.of(fibres, feeds)

    def _strands(self, section: WiringSection) -> Iterator[tuple[Fibre, KeyPath]]:
        for index, strand in enumerate(section.fibres):
            path: KeyPath = ("wiring", "fibres", index)
            source = self._devices.reference(strand.source, (*path, "from"), ("host", "switch"))
            sink = self._devices.reference(strand.sink, (*path, "to"), ("host", "switch"))
            if source is None or sink is None:
                continue
            kinds = self._devices.kind(source[0]), self._devices.kind(sink[0])
            if kinds[0] == kinds[1]:
                self._document.fault(
                    self._document.place(path),
                    f"a fibre joins an interface and a switch port, not two of kind {kinds[0]}",
                )
                continue
            transmits = kinds[0] == "host"
            host, switch = (source, sink) if transmits else (sink, source)
            self._devices.passes(
                SwitchPort(*switch), inward=transmits, path=(*path, "to" if transmits else "from")
            )
            yield Fibre(Endpoint(*host), SwitchPort(*switch), transmits, strand.loss), path
        for index, duplex in enumerate(section.interfaces):
            path = ("wiring", "interfaces", index)
            host_end = self._devices.reference(duplex.interface, (*path, "interface"), ("host",))
            for key, transmits in (("tx", True), ("rx", False)):
                end = self._devices.reference(
                    f"{duplex.switch}.{getattr(duplex, key)}", (*path, key), ("switch",)
                )
                if end is not None:
                    self._devices.passes(SwitchPort(*end), inward=transmits, path=(*path, key))
                if host_end is not None and end is not None:
                    yield Fibre(Endpoint(*host_end), SwitchPort(*end), transmits, duplex.loss), path

    def _both_ways(self, fibres: list[Fibre], taken: Mapping[object, Place]) -> None:
        for fibre in fibres:
            if (fibre.endpoint, not fibre.transmits) not in taken:
                missing = "to its receiver" if fibre.transmits else "from its transmitter"
                self._document.fault(
                    taken[(fibre.endpoint, fibre.transmits)],
                    f"{fibre.endpoint} has one fibre only; the one {missing} is missing",
                    "add it: a link needs both directions",
                )

    def _feeds(self, section: WiringSection) -> Iterator[Feed]:
        seen: dict[OutletRef, Place] = {}
        for index, feed in enumerate(section.outlets):
            path: KeyPath = ("wiring", "outlets", index)
            outlet = self._devices.reference(feed.outlet, (*path, "outlet"), ("power",))
            if self._devices.kind(feed.feeds) != "host":
                self._document.fault(
                    self._document.place((*path, "feeds")),
                    f"there is no host {feed.feeds!r}",
                    did_you_mean(feed.feeds, self._devices.named("host")),
                )
                continue
            if outlet is None:
                continue
            reference = OutletRef(*outlet)
            if reference in seen:
                self._document.fault(
                    self._document.place(path),
                    f"outlet {reference} feeds a host already, in line {seen[reference].line}",
                )
            seen[reference] = self._document.place(path)
            yield Feed(reference, feed.feeds)
