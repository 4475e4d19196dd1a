"""Renders a job spec as a dstack task."""
