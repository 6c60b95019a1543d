"""TC53: whatever key of a shipped file is misspelt, the loader says so and says where."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.playbook.loader import load_playbook
from testbed.rack.loader import load_rack
from testbed.source.places import FileFaults

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(
    [
        *(ROOT / "playbooks").glob("*.yaml"),
        *(ROOT / "playbooks" / "racks").glob("*.yaml"),
        *(ROOT / "testbed" / "rack" / "builtin").glob("*.yaml"),
    ]
)


def _keys(node: yaml.Node, above: str = "") -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            # The author chooses the names of measures: to rename one is no mistake by itself.
            if above != "measures":
                yield key
            yield from _keys(value, key.value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _keys(item)


def _keys_of(path: Path) -> list[yaml.ScalarNode]:
    root = yaml.compose(path.read_text("utf-8"), Loader=yaml.SafeLoader)
    # Nothing refers to a BMC, so that its name is free as well.
    return [key for key in _keys(root) if not key.value.startswith("bmc")]


KEYS = {path: _keys_of(path) for path in SHIPPED}
MISSPELLINGS = st.sampled_from(
    [
        lambda key, at: key[:at] + key[at + 1 :],  # a letter lost
        lambda key, at: key[: at + 1] + key[at:],  # a letter doubled
        lambda key, at: key[:at] + "x" + key[at + 1 :],  # a wrong letter
        lambda key, at: key + "s",
        lambda key, at: key.upper(),
        lambda key, at: "x-" + key,
    ]
)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_misspelt_key_is_found(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(SHIPPED))
    key = data.draw(st.sampled_from(KEYS[path]))
    at = data.draw(st.integers(0, len(key.value) - 1))
    renamed = data.draw(MISSPELLINGS)(key.value, at)
    if renamed in ("", key.value):
        return
    with TemporaryDirectory() as folder:
        _expect_fault(path, key, renamed, Path(folder))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_files_have_no_faults(path: Path) -> None:
    _load(path)


def _load(path: Path) -> None:
    if path.parent.name in ("racks", "builtin"):
        load_rack(str(path))
    else:
        load_playbook(path)


def _expect_fault(path: Path, key: yaml.ScalarNode, renamed: str, folder: Path) -> None:
    text = path.read_text("utf-8")
    broken = text[: key.start_mark.index] + renamed + text[key.end_mark.index :]
    kind = folder / ("racks" if path.parent.name in ("racks", "builtin") else "playbooks")
    kind.mkdir(exist_ok=True)
    copy = kind / path.name
    copy.write_text(broken, "utf-8")
    with pytest.raises(FileFaults) as caught:
        _load(copy)
    lines = broken.splitlines()
    for fault in caught.value.diagnostics:
        assert fault.place.file == str(copy)
        assert 1 <= fault.place.line <= len(lines)
        assert fault.message
