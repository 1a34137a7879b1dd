"""``xdeepserve eplb``: plan and judge expert placements offline, from a recording; no cluster needed."""
