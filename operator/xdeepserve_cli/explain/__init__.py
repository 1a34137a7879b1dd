"""``xdeepserve explain-placement``: why groups are where they are, and why not elsewhere."""
