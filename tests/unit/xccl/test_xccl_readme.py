"""The examples in the README do what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import xccl

assert xccl.__file__
PACKAGE = Path(xccl.__file__).parent
EXAMPLES = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
SAYS = {
    "Group.join(": [
        "rank 0: votes (100, 101)",
        "rank 1: computed 3 rows for others, got 0 tokens back",
        "rank 1: received 800000 bytes",
    ],
    "CompletionQueue(": [
        "posted: ['weights', 'note'] 64.0",
        "received 1000000.0 5",
        "rank 0: [127.0, 2.0, 3.0, 4.0]",
    ],
    "AttentionGroup.join(": [
        "attention die: Traffic(written=1, polled=0) Traffic(written=0, polled=1)",
        "expert die 0: 3 rows Traffic(written=1, polled=1) Traffic(written=1, polled=1)",
        "expert die 1: 3 rows Traffic(written=0, polled=1) Traffic(written=1, polled=0)",
    ],
    "channel.probe(": [
        "at rest: healthy",
        "nobody receives: saturated",
        "delayed: True",
        "cut: link_fault",
        "the send: link_broken",
    ],
    "bell.wait(": ["nobody else has joined yet", "woken for (7, 1)", "votes: (7, 1)", "swept crashed.endpoint"],
    "timing.dispatch(": ["EP128: 151 us", "96 tokens a die: 175 us", "zero-copy: 5.6 ms"],
}


GIVEN = {"Completion", "Dispatched", "FaultyLink", "Pushed", "Region", "Report", "Steps"}
"""What calls give: nobody makes or names them."""


def test_every_example_is_tried() -> None:
    assert all(any(called in example for called in SAYS) for example in EXAMPLES)


def test_every_primitive_has_an_example() -> None:
    text = "\n".join(EXAMPLES)
    public = {name for name in xccl.__all__ if not is_error(getattr(xccl, name))} - GIVEN
    operations = {"vote", "pending", "dispatch", "combine", "outbox", "fused_dispatch", "fused_combine", "a2e", "e2a"}
    operations |= {"send", "receive", "send_now", "receive_now", "probe", "post", "ring", "region"}
    assert sorted(name for name in public | operations if not re.search(rf"\b{name}\b", text)) == []


def is_error(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, Exception)


@pytest.mark.parametrize("called", SAYS)
def test_an_example_says_what_it_should(called: str, tmp_path: Path) -> None:
    example = next(text for text in EXAMPLES if re.search(rf"(?<!\w){re.escape(called)}", text))
    script = tmp_path / "example.py"
    script.write_text(example)
    ran = subprocess.run(
        [sys.executable, "-W", "error", script],
        env={"PYTHONPATH": str(PACKAGE.parent), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert [line for line in SAYS[called] if line not in ran.stdout] == []
