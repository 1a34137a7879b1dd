"""``xdeepserve status``: a deployment as a tree, down to its dies."""
