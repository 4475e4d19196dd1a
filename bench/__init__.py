"""Measurements, from the checkout."""
