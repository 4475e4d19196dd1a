"""Loads a job spec from a YAML file and flags, and finds all mistakes in them."""
