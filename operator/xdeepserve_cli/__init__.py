"""The command xdeepserve, also installed as kubectl-xdeepserve."""
