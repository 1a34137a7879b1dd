"""Real engines and TE-shells as processes of this machine, without a cluster: for benchmarks, and for tests."""
