"""Rack files: built-in, shipped and broken ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import EXIT_USER
from testbed.hal.types import Backend, Circuit, OutletState
from testbed.hal.wiring import Endpoint, OutletRef, SwitchPort
from testbed.rack.loader import builtin_racks, load_rack
from testbed.rack.rack import Rack
from testbed.source.places import FileFaults

RACKS = Path(__file__).parents[2] / "playbooks" / "racks"

SMALL = """\
schema: testbed/rack/v1
name: small
devices:
  ocs: {driver: circuit-switch, backend: mock, ports: 8}
  host0: {driver: gpu-host, backend: mock, interfaces: [p0]}
  host1: {driver: gpu-host, backend: mock, interfaces: [p0]}
  pdu: {driver: pdu, backend: mock, outlets: 2}
wiring:
  interfaces:
    - {interface: host0.p0, switch: ocs, tx: 1, rx: 2}
  fibres:
    - {from: host1.p0, to: ocs.3, loss: 2 dB}
    - {from: ocs.4, to: host1.p0}
  outlets:
    - {outlet: pdu.1, feeds: host0}
    - {outlet: pdu.2, feeds: host1}
safe_state:
  circuits: {ocs: ["1>4", "3>2"]}
  outlets: {pdu.1: on, pdu.2: off}
  processes: keep
deadlines: {apply: 2 s}
"""


def _load(tmp_path: Path, text: str) -> Rack:
    path = tmp_path / "rack.yaml"
    path.write_text(text)
    return load_rack(str(path))


def test_everything_of_a_rack_file(tmp_path: Path) -> None:
    rack = _load(tmp_path, SMALL)
    assert list(rack.devices) == ["ocs", "host0", "host1", "pdu"]
    host0, host1 = Endpoint("host0", "p0"), Endpoint("host1", "p0")
    assert (rack.wiring.tx(host0), rack.wiring.rx(host0)) == (
        SwitchPort("ocs", "1"),
        SwitchPort("ocs", "2"),
    )
    fibre = rack.wiring.fibre_at(SwitchPort("ocs", "3"))
    assert fibre is not None
    assert (fibre.endpoint, fibre.transmits, fibre.loss_db) == (host1, True, 2.0)
    assert rack.wiring.feeds_of("host1") == (OutletRef("pdu", "2"),)
    assert rack.safe_state.circuits == {"ocs": (Circuit("1", "4"), Circuit("3", "2"))}
    assert rack.safe_state.outlets == {
        OutletRef("pdu", "1"): OutletState.ON,
        OutletRef("pdu", "2"): OutletState.OFF,
    }
    assert rack.safe_state.processes == "keep"
    assert rack.deadlines_s == {"apply": 2.0}
    assert rack.text == SMALL


def test_the_built_in_rack() -> None:
    rack = load_rack("mock")
    assert "mock" in builtin_racks()
    assert rack.source == "builtin:mock"
    assert rack.of_kind("host") == ("host0", "host1", "host2", "host3")
    assert len(rack.wiring.endpoints) == 8
    assert rack.backend_label == "mock"
    assert all(rack.wiring.feeds_of(host) for host in rack.of_kind("host"))


def test_the_published_bench() -> None:
    """The map of server ports to mesh ports is the published one."""
    rack = load_rack(str(RACKS / "bench4.yaml"))
    published = {
        "host0": ((12, 18), (20, 36)),
        "host1": ((5, 9), (37, 6)),
        "host2": ((2, 17), (1, 0)),
        "host3": ((7, 13), (35, 34)),
    }
    for host, links in published.items():
        for interface, (tx, rx) in zip(("p0", "p1"), links, strict=True):
            end = Endpoint(host, interface)
            assert rack.wiring.tx(end) == SwitchPort("mesh0", str(tx))
            assert rack.wiring.rx(end) == SwitchPort("mesh0", str(rx))
    assert rack.devices["mesh0"].driver.name == "photonic-mesh"


def test_the_rack_of_sixteen() -> None:
    rack = load_rack(str(RACKS / "rack16.yaml"))
    hosts = rack.of_kind("host")
    assert len(hosts) == 16
    assert len(rack.wiring.endpoints) == 64
    for host in hosts:
        controllers = {feed.controller for feed in rack.wiring.feeds_of(host)}
        assert controllers == {"pdu-a", "pdu-b"}
    for end in rack.wiring.endpoints:
        assert 1 <= int(rack.wiring.tx(end).port) <= 160
        assert 161 <= int(rack.wiring.rx(end).port) <= 320


def test_mock_replaces_every_backend(tmp_path: Path) -> None:
    """TC61: one switch makes the whole rack a mock."""
    path = tmp_path / "rack.yaml"
    path.write_text(SMALL.replace("circuit-switch, backend: mock", "circuit-switch, backend: real"))
    with pytest.raises(FileFaults, match="has no real backend"):
        load_rack(str(path))
    rack = load_rack(str(path), mock=True)
    assert {device.backend for device in rack.devices.values()} == {Backend.MOCK}


def test_an_unknown_rack_has_a_hint() -> None:
    with pytest.raises(FileFaults, match="did you mean 'mock'") as caught:
        load_rack("mokc")
    assert caught.value.exit_code == EXIT_USER


def test_faults_of_all_sections_are_told_at_once(tmp_path: Path) -> None:
    """TC43, TC45: one look at the messages is enough to mend the file."""
    text = (
        SMALL.replace("ports: 8", "prots: 8")
        .replace("feeds: host1", "feeds: hots1")
        .replace("processes: keep", "processes: stay")
        .replace("apply: 2 s", "aply: 2 s")
    )
    with pytest.raises(FileFaults) as caught:
        _load(tmp_path, text)
    found = str(caught.value)
    for words in ("'prots'", "'hots1'", "'stay'", "'aply'"):
        assert words in found


@pytest.mark.parametrize("key", ["password", "token", "community", "PASSWORD"])
def test_a_secret_in_the_file_is_refused_and_never_shown(tmp_path: Path, key: str) -> None:
    text = SMALL.replace("ports: 8", f"ports: 8, {key}: hunter2, prots: 3")
    with pytest.raises(FileFaults) as caught:
        _load(tmp_path, text)
    assert "must not stand in a rack file" in str(caught.value)
    assert "env:NAME" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(caught.value.as_record())


def test_devices_whose_wiring_is_faulty_are_not_called_unused(tmp_path: Path) -> None:
    with pytest.raises(FileFaults) as caught:
        _load(tmp_path, SMALL.replace("switch: ocs", "swich: ocs"))
    assert "declared but nothing" not in str(caught.value)
