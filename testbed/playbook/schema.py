"""JSON Schema of playbooks, for editors: with the arguments of every installed task."""

from __future__ import annotations

from typing import Any

from testbed.playbook.file import PlaybookFile
from testbed.playbook.steps import StepKeys, TaskKeys
from testbed.playbook.task import TaskSpec, task_specs

DIALECT = "https://json-schema.org/draft/2020-12/schema"
EXPRESSION = {"type": "string", "pattern": r"\{\{|\{%", "title": "expression"}
_STEPS = {"type": "array", "items": {"$ref": "#/$defs/step"}}


def playbook_schema() -> dict[str, Any]:
    """The schema; it accepts every playbook that the loader accepts, as far as its form goes.

    Wherever a task takes a value it also takes an expression, so both are in its schema.
    """
    schema = PlaybookFile.model_json_schema(by_alias=True)
    definitions = schema.setdefault("$defs", {})
    steps = [_task(spec, definitions) for spec in task_specs().values()]
    definitions["block"] = _composed(
        {"block": _STEPS, "rescue": _STEPS, "always": _STEPS}, required="block"
    )
    definitions["parallel"] = _composed({"parallel": _STEPS}, required="parallel")
    definitions["step"] = {
        "anyOf": [*steps, {"$ref": "#/$defs/block"}, {"$ref": "#/$defs/parallel"}]
    }
    schema["properties"]["tasks"] = {**_STEPS, "minItems": 1}
    schema["properties"]["always"] = _STEPS
    return {"$schema": DIALECT, **schema, "title": "testbed playbook"}


def _composed(parts: dict[str, Any], *, required: str) -> dict[str, Any]:
    keys = StepKeys.model_json_schema(by_alias=True)
    return {
        "type": "object",
        "properties": {**keys["properties"], **parts},
        "required": [required],
        "additionalProperties": False,
    }


def _task(spec: TaskSpec, definitions: dict[str, Any]) -> dict[str, Any]:
    """A step with that task; its arguments go to the definitions."""
    arguments = spec.args.model_json_schema(
        by_alias=True, ref_template=f"#/$defs/{spec.name}.{{model}}"
    )
    for model, definition in arguments.pop("$defs", {}).items():
        definitions[f"{spec.name}.{model}"] = _or_expressions(definition)
    arguments = {**_or_expressions(arguments), "title": spec.name, "description": spec.summary}
    forms: list[dict[str, Any]] = [arguments]
    if spec.short is not None:
        # The one value alone: what the property allows, but no mapping that is the long form.
        forms.append(arguments["properties"][spec.short])
    if not arguments.get("required"):
        forms.append({"type": "null"})
    definitions[spec.name] = {"anyOf": forms, "description": spec.summary}
    keys = TaskKeys.model_json_schema(by_alias=True)
    return {
        "type": "object",
        "properties": {**keys["properties"], spec.name: {"$ref": f"#/$defs/{spec.name}"}},
        "required": [spec.name],
        "additionalProperties": False,
    }


def _or_expressions(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a mapping or a choice, with an expression allowed for every value in it."""
    properties = schema.get("properties")
    if properties is None:
        return schema
    return {**schema, "properties": {name: _value(part) for name, part in properties.items()}}


def _value(schema: dict[str, Any]) -> dict[str, Any]:
    part = dict(schema)
    for key in ("items", "additionalProperties"):
        if isinstance(part.get(key), dict):
            part[key] = _value(part[key])
    if "prefixItems" in part:
        part["prefixItems"] = [_value(item) for item in part["prefixItems"]]
    for key in ("anyOf", "oneOf"):
        if key in part:
            part[key] = [_value(choice) for choice in part[key]]
    return {"anyOf": [part, EXPRESSION]}
