"""A real Kubernetes control plane on one machine, and emulated SuperPod servers."""
