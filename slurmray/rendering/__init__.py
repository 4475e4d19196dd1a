"""Renders a job spec as an sbatch script, and verifies rendered scripts."""
