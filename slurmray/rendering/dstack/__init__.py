"""From a job spec to a task of dstack."""
