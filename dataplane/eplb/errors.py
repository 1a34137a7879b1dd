"""The one error of this package: input that no plan can satisfy, with the reason."""


class Unplannable(ValueError):
    """The load, the cluster or the constraints cannot be satisfied; the message says which, where and what to do."""
