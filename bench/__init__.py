"""Benchmarks; run them from the checkout."""
