"""What can go wrong in the demo's steps, in words for people."""


class DemoError(Exception):
    """Base: the message says what was wrong and where."""


class CommandFailed(DemoError):
    """A command ended with a status other than zero; the message is what it printed."""


class PromiseBroken(DemoError):
    """The system did not do what the demo promises."""
