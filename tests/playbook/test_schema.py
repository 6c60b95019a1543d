"""JSON Schemas for editors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.hal.registry import driver, driver_names
from testbed.playbook.schema import playbook_schema
from testbed.playbook.task import task_specs
from testbed.rack.schema import rack_schema
from testbed.source.reader import parse

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(
    [
        *(ROOT / "playbooks").rglob("*.yaml"),
        *(ROOT / "testbed" / "rack" / "builtin").glob("*.yaml"),
    ]
)


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for part in schema.values():
            yield from _references(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _references(part)


@pytest.mark.parametrize("schema", [playbook_schema(), rack_schema()], ids=["playbook", "rack"])
def test_schemas_are_whole(schema: dict[str, Any]) -> None:
    assert json.loads(json.dumps(schema)) == schema
    assert schema["$schema"].endswith("2020-12/schema")
    assert schema["additionalProperties"] is False
    for reference in _references(schema):
        assert reference.startswith("#/$defs/")
        assert reference.removeprefix("#/$defs/") in schema["$defs"], reference


def test_every_task_with_its_arguments() -> None:
    definitions = playbook_schema()["$defs"]
    for name, spec in task_specs().items():
        long_form = definitions[name]["anyOf"][0]
        assert definitions[name]["description"] == spec.summary
        assert long_form["properties"].keys() == {
            info.alias or field for field, info in spec.args.model_fields.items()
        }
        # The short form, or none, where the loader takes it too.
        forms = len(definitions[name]["anyOf"])
        assert forms == 1 + (spec.short is not None) + (not long_form.get("required"))


def test_every_driver_with_its_options() -> None:
    definitions = rack_schema()["$defs"]
    for name in driver_names():
        spec = driver(name)
        properties = definitions[name]["properties"]
        assert properties["driver"] == {"const": name}
        assert properties["backend"] == {"enum": [str(backend) for backend in spec.backends]}
        for field, info in spec.options.model_fields.items():
            assert (info.alias or field) in properties


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_files_are_as_the_schemas_say(path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    rack = path.parent.name in ("racks", "builtin")
    validator = jsonschema.Draft202012Validator(rack_schema() if rack else playbook_schema())
    document = parse(path.read_text("utf-8"), path.name)
    assert [error.message for error in validator.iter_errors(document.value)] == []


def test_what_the_loader_refuses_the_schema_refuses() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(playbook_schema())
    head = "schema: testbed/v1\nname: x\n"
    for text in ("tasks: []", "tasks:\n- wiat: 1 s", "tasks:\n- wait: 1 s\n  wehn: x", "trails: 1"):
        assert list(validator.iter_errors(parse(head + text, "x").value)), text
