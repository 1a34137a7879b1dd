"""Benchmarks: one module a name, one JSON shape for all."""
