"""What crosses a border between programs of a job: messages, settings, and their form on the wire."""
