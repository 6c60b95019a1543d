"""Reading a whole rack, when parts of it do not answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.engine.reading import OFF, read_rack
from testbed.engine.session import RackSession, rack_session
from testbed.hal.capabilities import FaultInjectable, PowerController
from testbed.hal.power import switch_verified
from testbed.hal.types import FaultSpec, OutletState
from testbed.rack.loader import load_rack
from testbed.timing.clock import now_s, run


def reading(state_dir: Path, prepare: Any) -> dict[str, Any]:
    async def main() -> dict[str, Any]:
        async with rack_session(
            load_rack("mock"), owner="test", state_dir=state_dir, virtual=True, devices=()
        ) as session:
            await prepare(session)
            began_s = now_s()
            found = await read_rack(session)
            return {**found, "elapsed_s": now_s() - began_s}

    return run(main, virtual=True)


async def nothing(session: RackSession) -> None:
    pass


def test_a_whole_rack(tmp_path: Path) -> None:
    found = reading(tmp_path, nothing)
    assert found["errors"] == {}
    assert found["links"] == []
    assert found["outlets"]["pdu.1"] == "on"
    assert found["hosts"]["host0"].startswith("up")


def test_a_host_without_power_is_not_waited_for(tmp_path: Path) -> None:
    async def off(session: RackSession) -> None:
        await switch_verified(session.device("pdu", PowerController), ["2"], OutletState.OFF)

    found = reading(tmp_path, off)
    assert found["hosts"]["host1"] == OFF
    assert found["errors"] == {}
    assert found["elapsed_s"] < 1.0


def test_devices_that_are_silent_cost_nobody_else_their_reading(tmp_path: Path) -> None:
    async def silent(session: RackSession) -> None:
        for name, operation in (("ocs", "circuits"), ("pdu", "outlets"), ("host2", "health")):
            fault = FaultSpec("silent", operation=operation)
            await session.device(name, FaultInjectable).inject(fault)
        session.doors.deadlines_s = {"circuits": 0.5, "outlets": 0.5, "health": 0.5}

    found = reading(tmp_path, silent)
    assert found["errors"].keys() == {"links", "pdu", "host2"}
    assert "did not finish circuits" in found["errors"]["links"]
    assert "did not finish outlets" in found["outlets"]["pdu"]
    assert "did not finish health" in found["hosts"]["host2"]
    assert found["hosts"]["host0"].startswith("up")
