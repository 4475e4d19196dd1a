"""`slurmray schema`: prints the JSON Schema of the job spec, for editors and docs/reference."""

from __future__ import annotations

import json

import click


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
    from slurmray.spec.job import JobSpec

    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **JobSpec.model_json_schema()}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
