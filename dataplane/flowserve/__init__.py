"""FlowServe: the engine of a DP group, its TE-shell and the frontend."""
