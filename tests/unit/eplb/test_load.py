"""Windows of load: what is refused, what a slice without tokens means, how ranks' counts become a window."""

import numpy as np
import pytest

from eplb import LoadCounter, LoadWindow, SlidingWindow, Unplannable
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


def test_counts_of_ranks_add_up_to_intervals_and_old_ones_leave() -> None:
    ranks = [LoadCounter(2, 4) for _ in range(2)]
    sliding = SlidingWindow(2, 2, 4, top_k=2)
    for interval in range(3):
        for rank in ranks:
            rank.add(1, np.array([[0, 3], [interval, 3]]))
        sliding.push(sum(rank.take() for rank in ranks))
    window = sliding.window()
    assert window.counts[:, 1].tolist() == [[2, 2, 0, 4], [2, 0, 2, 4]]
    assert not window.counts[:, 0].any()
    assert not ranks[0].take().any()


def test_an_empty_or_misshapen_interval_is_refused() -> None:
    sliding = SlidingWindow(2, 2, 4)
    with pytest.raises(Unplannable):
        sliding.window()
    with pytest.raises(Unplannable, match=r"\(2, 4\)"):
        sliding.push(np.zeros((4, 2)))


def test_huge_counts_do_not_wrap_around() -> None:
    shares = LoadWindow.of(np.full((2, 1, 8), 2**62, np.int64)).shares()
    assert shares == pytest.approx(np.full((2, 1, 8), 1 / 8))
