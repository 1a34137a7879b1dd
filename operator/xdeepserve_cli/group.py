"""Commands with subcommands, all set up alike: plain help, no completion to install, Python's own tracebacks."""

import typer
from typer.core import TyperGroup


def group(text: str, cls: type[TyperGroup] = TyperGroup) -> typer.Typer:
    """One whose help begins with ``text``."""
    return typer.Typer(
        cls=cls,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help=text,
    )
