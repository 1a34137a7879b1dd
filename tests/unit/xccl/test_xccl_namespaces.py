"""Two dies in network namespaces of their own, and a cable between them that is pulled out and put back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from xccl_far_die import HOSTS

PROGRAM = Path(__file__).with_name("xccl_far_die.py")
PATIENCE = 30


def ip(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=PATIENCE)


@pytest.fixture
def namespaces() -> Iterator[list[str]]:
    """Two namespaces and a cable: `eth0` in each. Skips where that is not allowed."""
    names = [f"xccl-{os.getpid()}-{i}" for i in range(2)]
    with ExitStack() as stack:
        for name in names:
            try:
                if ip("netns", "add", name).returncode:
                    pytest.skip("network namespaces are not allowed here")
            except FileNotFoundError:
                pytest.skip("there is no ip command")
            stack.callback(ip, "netns", "del", name)
        made = ip("link", "add", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0", "netns", names[1])
        if made.returncode:
            pytest.skip("virtual cables are not allowed here")
        for name, host in zip(names, HOSTS, strict=True):
            ip("-n", name, "address", "add", f"{host}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
        yield names


def test_a_cable_that_is_pulled_out_is_a_broken_link_and_the_next_epoch_heals(
    namespaces: list[str], tmp_path: Path
) -> None:
    with ExitStack() as stack:
        dies = [
            stack.enter_context(
                subprocess.Popen(
                    ["ip", "netns", "exec", name, sys.executable, str(PROGRAM), str(rank), str(tmp_path / "host")],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for rank, name in enumerate(namespaces)
        ]
        for die in dies:
            stack.callback(die.kill)

        def says(line: str) -> None:
            for die in dies:
                assert die.stdout is not None
                assert die.stdout.readline() == line + "\n"

        says("voted 0 1")
        ip("-n", namespaces[1], "link", "set", "eth0", "down")
        says("link_broken")
        ip("-n", namespaces[1], "link", "set", "eth0", "up")
        for die in dies:
            assert die.stdin is not None
            die.stdin.write("go on\n")
            die.stdin.flush()
        says("voted 5 6")
        assert [die.wait(PATIENCE) for die in dies] == [0, 0]
