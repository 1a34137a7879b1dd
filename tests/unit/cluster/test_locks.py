"""One at a time, also when the holder removes the locked file or dies."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from xdeepserve_cluster.locks import exclusive


def test_the_second_is_told_who_holds_it_and_gets_it_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lock"
    order: list[str] = []
    waiting = threading.Event()

    def on_wait(holder: str) -> None:
        order.append(f"waits for {holder}")
        waiting.set()

    def second() -> None:
        with exclusive(path, on_wait):
            order.append("second")

    thread = threading.Thread(target=second)
    with exclusive(path, pytest.fail):
        thread.start()
        assert waiting.wait(10)
        order.append("first")
    thread.join(10)
    assert order == [f"waits for {os.getpid()}", "first", "second"]


def test_who_waited_for_a_removed_file_locks_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lock"
    waiting = threading.Event()
    held: list[bool] = []

    def second() -> None:
        with exclusive(path, lambda holder: waiting.set()):
            held.append(path.exists())

    thread = threading.Thread(target=second)
    with exclusive(path, pytest.fail):
        thread.start()
        assert waiting.wait(10)
        shutil.rmtree(path.parent)
    thread.join(10)
    assert held == [True]


def test_a_holder_that_died_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    child = os.fork()
    if child == 0:
        lock = exclusive(path, lambda holder: None)
        lock.__enter__()
        os._exit(0)
    os.waitpid(child, 0)
    with exclusive(path, pytest.fail):
        pass
