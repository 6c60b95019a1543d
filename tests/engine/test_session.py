"""Sessions by hand: the lease, the guards, the journal, as a run has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.engine.devices import GUARDS
from testbed.engine.recover import dirty
from testbed.engine.session import rack_session
from testbed.errors import DeviceRefused, DeviceTimeout, LeaseError, RackError
from testbed.hal.capabilities import (
    CAPABILITIES,
    FaultInjectable,
    GpuHost,
    NicHost,
    OpticalSwitch,
    PowerMeter,
)
from testbed.hal.types import Circuit, FaultSpec
from testbed.rack.loader import load_rack
from testbed.timing.clock import run

LINK = Circuit("1", "10")


def by_hand(state_dir: Path, work: Any, **keys: Any) -> Any:
    async def main() -> Any:
        async with rack_session(
            load_rack("mock"), owner="testbed switch", state_dir=state_dir, **keys
        ) as session:
            return await work(session)

    return run(main, virtual=keys.get("virtual", False))


def test_what_is_switched_by_hand_stays(tmp_path: Path) -> None:
    async def connect(session: Any) -> None:
        await session.device("ocs", OpticalSwitch).apply({LINK})

    async def look(session: Any) -> Any:
        assert session.identities.keys() == {"ocs"}
        return await session.device("ocs", OpticalSwitch).circuits()

    by_hand(tmp_path, connect, devices=("ocs",))
    assert by_hand(tmp_path, look, devices=("ocs",)) == {LINK}
    assert dirty(load_rack("mock"), tmp_path) == []


def test_a_device_left_in_doubt_by_hand_is_dirty(tmp_path: Path) -> None:
    """TC78: unknown is never assumed good."""

    async def silent(session: Any) -> None:
        await session.device("ocs", OpticalSwitch).circuits()
        await session.device("ocs", FaultInjectable).inject(FaultSpec("silent", operation="apply"))
        session.doors.deadlines_s = {"apply": 0.2}
        await session.device("ocs", OpticalSwitch).apply({LINK})

    with pytest.raises(DeviceTimeout):
        by_hand(tmp_path, silent, devices=("ocs",))
    assert [run.devices for run in dirty(load_rack("mock"), tmp_path)] == [("ocs",)]


def test_a_refusal_by_hand_leaves_nothing_dirty(tmp_path: Path) -> None:
    async def refused(session: Any) -> None:
        await session.device("ocs", OpticalSwitch).apply({Circuit("1", "99")})

    with pytest.raises(DeviceRefused):
        by_hand(tmp_path, refused, devices=("ocs",))
    assert dirty(load_rack("mock"), tmp_path) == []


def test_one_session_at_a_time(tmp_path: Path) -> None:
    async def again(session: Any) -> None:
        async with rack_session(load_rack("mock"), owner="second", state_dir=tmp_path):
            pass

    with pytest.raises(LeaseError, match="testbed switch"):
        by_hand(tmp_path, again, devices=())


def test_virtual_time_takes_no_lease_and_keeps_nothing(tmp_path: Path) -> None:
    async def again(session: Any) -> None:
        async with rack_session(
            load_rack("mock"), owner="second", state_dir=tmp_path, virtual=True, devices=()
        ):
            pass

    by_hand(tmp_path, again, virtual=True)
    assert not list(tmp_path.iterdir())


def test_what_a_device_is_not_is_refused_with_what_it_is(tmp_path: Path) -> None:
    async def wrong(session: Any) -> None:
        with pytest.raises(RackError, match=r"pdu \(pdu\) is no optical-switch"):
            session.device("pdu", OpticalSwitch)
        with pytest.raises(RackError, match="no device 'ocs9'"):
            session.device("ocs9", OpticalSwitch)
        assert isinstance(session.device("host0", GpuHost), GpuHost)
        assert session.device("host0", NicHost) is session.device("host0", NicHost)
        assert await session.device("pdu", PowerMeter).outlet_power_w()

    by_hand(tmp_path, wrong, devices=(), virtual=True)


def test_every_capability_has_a_guard_with_all_its_operations() -> None:
    """A capability without a guard would be a way around deadlines, lease and journal."""
    for capability in CAPABILITIES.values():
        guard = GUARDS[capability]
        names = {n for n in dir(capability) if not n.startswith("_")}
        assert names <= set(dir(guard)), capability
