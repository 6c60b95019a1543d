"""Words for shell completion. They must come fast, and never fail.

Names of a rack are taken from its file as plain YAML: the checked loader costs more than people
wait for a Tab, and a file with a fault must not keep the shell from completing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import typer

_MANY = 50


def racks(incomplete: str) -> list[str]:
    """Built-in racks, and rack files in the usual places."""
    names = [path.stem for path in sorted(_builtin().glob("*.yaml"))]
    return [n for n in [*names, *_yaml("playbooks/racks"), *_yaml(".")] if n.startswith(incomplete)]


def playbooks(incomplete: str) -> list[str]:
    """Playbooks in the usual places, and folders on the way to others."""
    return [n for n in [*_yaml("playbooks"), *_yaml(".")] if n.startswith(incomplete)]


def runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Runs of the results folder, the newest first."""
    folder = Path(ctx.params.get("results") or os.environ.get("TESTBED_RESULTS") or "results")
    try:
        names = sorted((p.name for p in folder.iterdir() if p.is_dir()), reverse=True)
    except OSError:
        names = []
    return [n for n in ["latest", *names] if n.startswith(incomplete)][:_MANY]


def switches(ctx: typer.Context, incomplete: str) -> list[str]:
    """Switches of the rack: the devices at which interfaces end."""
    return _fitting({port.partition(".")[0] for _, port in _ends(ctx)}, incomplete)


def hosts(ctx: typer.Context, incomplete: str) -> list[str]:
    """Hosts of the rack: the devices whose interfaces are wired."""
    return _fitting({end.partition(".")[0] for end, _ in _ends(ctx)}, incomplete)


def interfaces(ctx: typer.Context, incomplete: str) -> list[str]:
    """Wired interfaces of the rack, as ``host0.p0``."""
    return _fitting({end for end, _ in _ends(ctx)}, incomplete)


def fed(ctx: typer.Context, incomplete: str) -> list[str]:
    """What power can be switched for: hosts with a feed, and outlets."""
    feeds = _entries(_rack(ctx), "wiring", "outlets")
    found = {str(feed[key]) for feed in feeds for key in ("feeds", "outlet") if key in feed}
    return _fitting(found, incomplete)


def _ends(ctx: typer.Context) -> list[tuple[str, str]]:
    """Interfaces, each with a switch, or a port of one, at its other end."""
    rack = _rack(ctx)
    found = [
        (str(entry["interface"]), str(entry["switch"]))
        for entry in _entries(rack, "wiring", "interfaces")
        if {"interface", "switch"} <= entry.keys()
    ]
    for fibre in _entries(rack, "wiring", "fibres"):
        if {"from", "to"} <= fibre.keys():
            ends = str(fibre["from"]), str(fibre["to"])
            # A port of a switch is a number; a fibre has one at either end.
            at_port = ends[0].rpartition(".")[2].isdecimal()
            found.append((ends[1], ends[0]) if at_port else ends)
    return found


def _rack(ctx: typer.Context) -> Any:
    import yaml

    reference = str(ctx.params.get("rack") or os.environ.get("TESTBED_RACK") or "mock")
    builtin = _builtin() / f"{reference}.yaml"
    try:
        text = (builtin if builtin.is_file() else Path(reference)).read_text("utf-8")
        return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, ValueError, yaml.YAMLError):
        return {}


def _entries(value: Any, *path: str) -> list[dict[str, Any]]:
    """A list of mappings somewhere in a file that nobody has checked."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return [e for e in value if isinstance(e, dict)] if isinstance(value, list) else []


def _fitting(names: set[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _builtin() -> Path:
    return Path(__file__).parents[1] / "rack" / "builtin"


def _yaml(folder: str) -> list[str]:
    try:
        return sorted(str(p) for p in Path(folder).glob("*.yaml"))
    except OSError:
        return []
