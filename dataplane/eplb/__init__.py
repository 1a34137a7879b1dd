"""Expert load balancing: pure functions of load and placement."""
