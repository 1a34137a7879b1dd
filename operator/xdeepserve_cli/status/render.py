"""Draws trees: colours and guides on a terminal, indented lines in a pipe.

What is well is folded: of more than ``SHOWN`` siblings of one kind, those that are ready beyond the first few become
one line, so that an instance of hundreds of groups fits on a screen and what is wrong is always seen.
"""

from collections.abc import Iterator, Sequence

import typer

from xdeepserve_cli.output import on_terminal
from xdeepserve_cli.status.tree import Branch

SHOWN = 8
FIRST = 3
MARKS = {True: "✔", False: "✘", None: "·"}
COLOURS = {True: "green", False: "red", None: "yellow"}
_SAID = {"Ready", "Joined"}  # reasons that add nothing to a mark


def print_trees(trees: Sequence[Branch], *, everything: bool) -> None:
    """Prints to standard output; ``everything`` folds nothing."""
    if on_terminal():
        _print_rich(trees, everything=everything)
        return
    for branch in trees:
        for line in lines(branch, everything=everything):
            typer.echo(line)


def lines(branch: Branch, depth: int = 0, *, everything: bool = False) -> Iterator[str]:
    """The plain form: two blanks a level, READY or NOT-READY as a word."""
    word = {True: "ready", False: "NOT READY", None: "unknown"}[branch.ready]
    yield f"{'  ' * depth}{branch.kind} {branch.name}: {word}{_after(', ', describe(branch))}"
    for child in folded(branch.children, everything=everything):
        if isinstance(child, str):
            yield f"{'  ' * (depth + 1)}{child}"
        else:
            yield from lines(child, depth + 1, everything=everything)


def folded(children: Sequence[Branch], *, everything: bool) -> Iterator[Branch | str]:
    """The children to show, in order; at the end a line that counts the others."""
    groups = [child for child in children if child.kind == "DPGroup"]
    hidden: set[str] = set()
    if not everything and len(groups) > SHOWN:
        hidden = {child.name for child in groups if child.ready}
        hidden -= {child.name for child in groups[:FIRST]}
    yield from (child for child in children if child.name not in hidden)
    if hidden:
        yield f"… and {len(hidden)} more DPGroups that are ready (--all shows them)"


def describe(branch: Branch) -> str:
    """Reason, message and facts in one line."""
    facts = dict(branch.facts)
    parts = [branch.reason] if branch.reason and not (branch.ready and branch.reason in _SAID) else []
    if branch.message and not branch.ready:
        parts.append(branch.message)
    if "state" in facts and branch.reason == facts["state"]:
        facts.pop("state")
    dies = facts.pop("dies", None)
    if dies:
        facts["dies"] = ",".join(map(str, dies))
    parts += [f"{word}={value}" for word, value in facts.items() if value not in ("", None, [], 0)]
    return "  ".join(parts)


def _print_rich(trees: Sequence[Branch], *, everything: bool) -> None:
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    def styled(branch: Branch) -> Text:
        colour = COLOURS[branch.ready]
        text = Text.assemble((MARKS[branch.ready], colour), f" {branch.kind} ", (branch.name, "bold"))
        return text.append(f"  {describe(branch)}", "dim" if branch.ready else colour)

    def grown(tree: Tree, branch: Branch) -> Tree:
        for child in folded(branch.children, everything=everything):
            if isinstance(child, str):
                tree.add(Text(child, "dim"))
            else:
                grown(tree.add(styled(child)), child)
        return tree

    console = Console(highlight=False)
    for branch in trees:
        console.print(grown(Tree(styled(branch)), branch))


def _after(separator: str, text: str) -> str:
    return separator + text if text else ""
