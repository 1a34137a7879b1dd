"""The demo's path, step by step; used by make demo, the quickstart benchmark and the end-to-end tests."""
