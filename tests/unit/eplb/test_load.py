"""Windows of load: what is refused, what a slice without tokens means, how ranks' counts become a window."""

import numpy as np
import pytest

from eplb import LoadCounter, LoadWindow, Unplannable
from eplb.load import MAX_CELLS


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        (np.zeros((2, 3)), r"\[slices, layers, experts\]"),
        (np.zeros((0, 1, 4)), "none of them 0"),
        (np.array([[[1.0, -2.0]]]), r"load\[0, 0, 1\] is -2.0"),
        (np.array([[[1.0, np.nan]]]), r"load\[0, 0, 1\] is nan"),
        (np.array([[[np.inf]]]), "inf: not a number of tokens"),
        (np.array([[["many"]]]), "numbers of tokens"),
        (np.array([[[1 + 1j]]]), "numbers of tokens"),
    ],
)
def test_what_is_no_load_is_refused_with_its_place(counts: np.ndarray, reason: str) -> None:
    with pytest.raises(Unplannable, match=reason):
        LoadWindow.of(counts)


def test_a_window_that_is_too_large_is_refused() -> None:
    huge = np.broadcast_to(np.float32(0), (MAX_CELLS, 1, 2))
    with pytest.raises(Unplannable, match="use fewer slices"):
        LoadWindow.of(huge)


def test_an_empty_slice_repeats_the_mean_and_an_idle_layer_is_even() -> None:
    window = LoadWindow.of([[[3, 1], [0, 0]], [[0, 0], [0, 0]], [[1, 3], [0, 0]]])
    shares = window.shares()
    assert shares[:, 0].tolist() == [[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]]
    assert (shares[:, 1] == 0.5).all()
    assert window.idle.tolist() == [False, True]


def test_a_counter_counts_what_a_gate_chose_and_starts_anew_when_it_is_read() -> None:
    counter = LoadCounter(2, 4)
    counter.add(1, np.array([[0, 3], [2, 3]]))
    counter.add(1, np.array([[1, 3]]))
    assert counter.take().tolist() == [[0, 0, 0, 0], [1, 1, 1, 3]]
    assert not counter.take().any()


def test_huge_counts_do_not_wrap_around() -> None:
    shares = LoadWindow.of(np.full((2, 1, 8), 2**62, np.int64)).shares()
    assert shares == pytest.approx(np.full((2, 1, 8), 1 / 8))
