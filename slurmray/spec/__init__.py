"""The job spec: its fields, their types, and messages about mistakes."""
