"""The one exception of the cluster package."""


class ClusterError(Exception):
    """Something a person can act on: the text says what was wrong, where, and what to do about it."""
