"""``xdeepserve rollout``: the history of a ModelDeployment, going back in it, and how far a change has come."""
