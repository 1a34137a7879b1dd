"""Words: one contract, two implementations, and what the compiler makes of the compiled one on ARM."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from mmap import mmap
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from xccl import atomics
from xccl.atomics import InterpretedWords, Words

Maker: TypeAlias = Callable[[Any], Words]
LARGEST = 2**64 - 1


def plain(buffer: Any) -> Words:
    return InterpretedWords(buffer, fenced=False)


def fenced(buffer: Any) -> Words:
    return InterpretedWords(buffer, fenced=True)


def native(buffer: Any) -> Words:
    if atomics._native is None:
        pytest.skip("built without a C compiler")
    return atomics._native.Words(buffer)


@pytest.fixture(params=[plain, fenced, native])
def make(request: pytest.FixtureRequest) -> Maker:
    maker: Maker = request.param
    return maker


def test_words_hold_64_bits_in_the_machine_s_order(make: Maker) -> None:
    buffer = bytearray(24)
    words = make(buffer)
    words.store(8, LARGEST - 1)
    assert words.load(8) == LARGEST - 1
    assert np.frombuffer(buffer, np.uint64).tolist() == [0, LARGEST - 1, 0]


def test_add_gives_the_word_before_and_wraps(make: Maker) -> None:
    words = make(bytearray(16))
    assert [words.add(8, LARGEST), words.add(8, 3), words.load(8)] == [0, LARGEST, 2]


def test_add_each_counts_repeated_offsets(make: Maker) -> None:
    words = make(bytearray(32))
    words.add_each(np.array([0, 16, 16], np.int64), 5)
    assert [words.load(offset) for offset in (0, 8, 16, 24)] == [5, 0, 10, 0]


@pytest.mark.parametrize("offset", [-8, 4, 16, 1 << 40])
def test_an_offset_that_is_no_word_is_refused(make: Maker, offset: int) -> None:
    words = make(bytearray(16))
    with pytest.raises(IndexError):
        words.load(offset)
    with pytest.raises(IndexError):
        words.store(offset, 1)


def test_additions_of_several_processes_are_not_lost(make: Maker) -> None:
    with mmap(-1, 4096) as shared:
        words = make(shared)
        children = []
        for _ in range(2):
            if (pid := os.fork()) == 0:
                for _ in range(3000):
                    words.add(64, 1)
                os._exit(0)
            children.append(pid)
        assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0, 0]
        assert words.load(64) == 6000
        del words


def test_accesses_work_from_several_threads(make: Maker) -> None:
    words = make(bytearray(16))

    def count(offset: int) -> None:
        for _ in range(2000):
            words.store(offset, words.load(offset) + 1)

    threads = [threading.Thread(target=count, args=(offset,)) for offset in (0, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [words.load(0), words.load(8)] == [2000, 2000]


def test_a_read_only_or_crooked_buffer_is_refused() -> None:
    with pytest.raises(BufferError):
        native(bytes(16))
    with pytest.raises(ValueError, match="aligned"):
        native(memoryview(bytearray(24))[1:])


def test_the_compiled_words_are_atomics_on_arm(tmp_path: Path) -> None:
    """Publishing is a store-release, waiting a load-acquire, adding both: instructions, not luck with x86's order."""
    pytest.importorskip("ziglang", reason="a compiler for ARM is not installed")
    source = Path(str(atomics.__file__)).with_name("native") / "words.c"
    assembly = tmp_path / "native.s"
    command = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu", "-O2", "-S", "-o", assembly]
    command += [
        f"-I{sysconfig.get_paths()['include']}",
        f"-I{source.parents[2]}",
        "-D_GNU_SOURCE",
        "-mcpu=generic+lse",
        source,
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    instructions = set(re.findall(r"^\s+(stlr|ldar|ldapr|ldaddal)\b", assembly.read_text(), re.MULTILINE))
    assert {"stlr", "ldaddal"} < instructions
    assert instructions & {"ldar", "ldapr"}


@pytest.mark.skipif(not atomics.NATIVE, reason="built without a C compiler")
class TestGatheredSum:
    """out[t] = Σ_k weights[t, k] · row(t, k)."""

    @pytest.mark.parametrize("width", [1, 63, 64, 65, 200])
    def test_it_is_numpy_s_sum_bit_for_bit(self, width: int) -> None:
        rng = np.random.default_rng(width)
        sources = [rng.standard_normal((9, width)).astype(np.float32) for _ in range(2)]
        which, rows = rng.integers(0, 2, (5, 3)), rng.integers(0, 9, (5, 3))
        weights = rng.standard_normal((5, 3)).astype(np.float32)
        out = np.empty((5, width), np.float32)
        buffers = tuple(bytearray(source) for source in sources)
        atomics.gathered_sum(buffers, out, which, rows * width * 4, weights)
        picked = np.array(
            [[sources[w][r] for w, r in zip(*pair, strict=True)] for pair in zip(which, rows, strict=True)]
        )
        assert np.array_equal(out, (picked * weights[:, :, np.newaxis]).sum(axis=1))

    @pytest.mark.parametrize(("which", "offset"), [(1, 0), (-1, 0), (0, 4), (0, -4), (0, 2), (0, 1 << 62)])
    def test_a_row_outside_of_its_memory_is_refused(self, which: int, offset: int) -> None:
        out, weights = np.empty((1, 4), np.float32), np.ones((1, 1), np.float32)
        with pytest.raises(IndexError):
            atomics.gathered_sum((bytearray(16),), out, np.array([[which]]), np.array([[offset]]), weights)

    def test_arrays_that_do_not_fit_are_refused(self) -> None:
        good = [np.empty((1, 4), np.float32), np.zeros((1, 1), np.int64), np.zeros((1, 1), np.int64)]
        for weights in (np.ones((2, 1), np.float32), np.ones((1, 2), np.float32), np.ones((1, 1), np.float64)):
            with pytest.raises(ValueError, match="do not fit each other"):
                atomics.gathered_sum((bytearray(16),), *good, weights)  # type: ignore[arg-type]
