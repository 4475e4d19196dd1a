"""The job spec: its fields, their types, and the messages about mistakes in them."""
