"""Words for shell completion. They must come fast, and never fail."""

from __future__ import annotations

from pathlib import Path


def racks(incomplete: str) -> list[str]:
    """Built-in racks, and rack files in the usual places."""
    import importlib.resources as resources

    builtin = resources.files("testbed.rack") / "builtin"
    names = [p.name.removesuffix(".yaml") for p in builtin.iterdir() if p.name.endswith(".yaml")]
    return [n for n in [*names, *_yaml("playbooks/racks"), *_yaml(".")] if n.startswith(incomplete)]


def playbooks(incomplete: str) -> list[str]:
    """Playbooks in the usual places, and folders on the way to others."""
    return [n for n in [*_yaml("playbooks"), *_yaml(".")] if n.startswith(incomplete)]


def runs(incomplete: str) -> list[str]:
    """Runs of the usual results folder, the newest first."""
    folder = Path("results")
    if not folder.is_dir():
        return ["latest"]
    names = sorted((p.name for p in folder.iterdir() if p.is_dir()), reverse=True)
    return [n for n in ["latest", *names] if n.startswith(incomplete)][:50]


def _yaml(folder: str) -> list[str]:
    try:
        return sorted(str(p) for p in Path(folder).glob("*.yaml"))
    except OSError:
        return []
