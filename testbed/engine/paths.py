"""Where state is kept that outlives a run: leases, journals, and the worlds of mock racks."""

from __future__ import annotations

import os
from pathlib import Path

from testbed.hal.types import Backend
from testbed.rack.rack import Rack

WORLD_FILE = "world.json"
"""In a rack's folder: what its twins keep between commands."""


def state_dir() -> Path:
    """The state directory: ``TESTBED_STATE_DIR``, else the user's own of this system."""
    given = os.environ.get("TESTBED_STATE_DIR")
    if given:
        return Path(given)
    from platformdirs import user_state_path

    return user_state_path("testbed")


def rack_folder(rack: Rack, state_dir: Path) -> Path:
    """Folder of a rack's lease and journals.

    A rack is known by its name, so that two copies of its file contend for one lease. The
    twins of a rack are another rack: trying a playbook with ``--mock`` must not need the
    hardware.
    """
    backends = {entry.backend for entry in rack.devices.values()}
    name = f"{rack.name}.mock" if backends <= {Backend.MOCK} else rack.name
    return state_dir / "racks" / name
