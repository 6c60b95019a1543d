"""JSON Schema of rack files, for editors: with the options of every installed driver."""

from __future__ import annotations

from typing import Any

from testbed.hal.deadlines import OPERATION_DEADLINES_S
from testbed.hal.registry import driver, driver_names
from testbed.rack.model import RackFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def rack_schema() -> dict[str, Any]:
    """The schema; it accepts every rack file that the loader accepts, as far as its form goes."""
    schema = RackFile.model_json_schema(by_alias=True)
    definitions = schema.setdefault("$defs", {})
    drivers = []
    for name in driver_names():
        drivers.append(_device(name, definitions))
    schema["properties"]["devices"] = {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {
            "type": "object",
            "required": ["driver"],
            "properties": {"driver": {"enum": list(driver_names())}},
            "oneOf": drivers,
        },
    }
    deadline = schema["properties"]["deadlines"]
    quantity = deadline.pop("additionalProperties")
    deadline["properties"] = {
        name: {**quantity, "default": default_s}
        for name, default_s in OPERATION_DEADLINES_S.items()
    }
    deadline["additionalProperties"] = False
    return {"$schema": DIALECT, **schema, "title": "testbed rack file"}


def _device(name: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """The section of a device with that driver."""
    spec = driver(name)
    options = spec.options.model_json_schema(
        by_alias=True, ref_template=f"#/$defs/{name}.{{model}}"
    )
    for model, definition in options.pop("$defs", {}).items():
        definitions[f"{name}.{model}"] = definition
    definitions[name] = {
        **options,
        "title": name,
        "description": spec.summary,
        "properties": {
            "driver": {"const": name},
            "backend": {"enum": [str(backend) for backend in spec.backends]},
            **options.get("properties", {}),
        },
        "required": ["driver", *options.get("required", [])],
        "additionalProperties": False,
    }
    return {"$ref": f"#/$defs/{name}"}
