"""Emulated servers of a SuperPod: one process registers them as nodes and runs their pods as processes."""
