"""`slurmray schema`: prints the JSON Schema of the job spec, for editors and docs/reference."""

from __future__ import annotations

import json
from typing import Any

import click

_NULL = {"type": "null"}


@click.command
def schema() -> None:
    """Print the JSON Schema (draft 2020-12) of the job spec.

    \b
    To complete and check job specs in an editor with a YAML language server, write the schema to a file
      slurmray schema > job-spec.schema.json
    and begin the job spec with
      # yaml-language-server: $schema=job-spec.schema.json
    """
    click.echo(schema_text().encode(), nl=False)


def schema_text() -> str:
    """Return the schema as JSON text."""
    from slurmray.spec.job_spec import JobSpec

    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **JobSpec.model_json_schema()}
    for section in (document, *document["$defs"].values()):
        required = section.get("required", ())
        properties = section.get("properties", {})
        for name, field in properties.items():
            properties[name] = _as_loaded(field) if name in required else _nullable(_as_loaded(field))
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _as_loaded(field: Any) -> Any:
    """Allow an integer as text, as job specs do, and no other names where names have a pattern."""
    if isinstance(field, list):
        return [_as_loaded(item) for item in field]
    if not isinstance(field, dict):
        return field
    result = {key: _as_loaded(value) for key, value in field.items()}
    if result.get("type") == "integer":
        result |= {"type": ["integer", "string"], "pattern": "^[+-]?[0-9]+$"}
    if "patternProperties" in result:
        result["additionalProperties"] = False
    return result


def _nullable(field: dict[str, Any]) -> dict[str, Any]:
    """Allow null, which means not set."""
    if "$ref" in field or "enum" in field:
        kind = {key: field.pop(key) for key in ("$ref", "enum", "type") if key in field}
        return {"anyOf": [kind, _NULL], **field}
    if "anyOf" in field:
        return field | {"anyOf": [*(choice for choice in field["anyOf"] if choice != _NULL), _NULL]}
    kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
    return field | {"type": [*kinds, "null"]}
