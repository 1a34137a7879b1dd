"""vote, dispatch and combine of a whole group against a plain NumPy all-to-all, and the rules of a group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xccl_world import SMALL, endpoints, groups, interleave, join, peer_of, randomly

from xccl import (
    Broken,
    Endpoint,
    EventMismatch,
    Group,
    Layout,
    LayoutMismatch,
    Peer,
    PeerLost,
    StaleEpoch,
    Steps,
    Timeout,
    run,
)
from xccl.alltoall import AllToAll
from xccl.memory import Buffer, MappedMemory
from xccl.routing import Floats, Integers, route


def expert(tokens: Floats, experts: Integers) -> Floats:
    """A stand-in for an expert that differs from expert to expert and is exact in float32."""
    scale: Floats = (experts + 1).astype(np.float32)
    return tokens * scale[:, np.newaxis]


def moe(group: Group, x: Floats, expert_ids: Integers, owner: Integers, weights: Floats) -> Steps[Any]:
    """One MoE layer of one rank: what arrived, and the layer's output."""
    dispatched = yield from group.dispatch(x, expert_ids, owner)
    y = expert(dispatched.tokens, dispatched.experts)
    combined = yield from group.combine(y, dispatched, weights)
    return dispatched, combined


@st.composite
def traffic(draw: st.DrawFn) -> tuple[int, int, list[int], int, float]:
    """Seed, experts, tokens of each rank (some empty), top-k, and how skewed the choice of experts is."""
    tokens = draw(st.lists(st.integers(0, SMALL.max_tokens), min_size=1, max_size=SMALL.max_peers))
    top_k = draw(st.integers(1, SMALL.top_k))
    return draw(st.integers(0, 999)), draw(st.integers(1, 9)), tokens, top_k, draw(st.sampled_from([0.0, 1.0, 9.0]))


@settings(max_examples=60, deadline=None)
@given(traffic())
def test_an_moe_layer_equals_the_single_process_computation_bit_for_bit(case: Any) -> None:
    seed, experts, tokens, top_k, skew = case
    rng = np.random.default_rng(seed)
    ranks = len(tokens)
    odds = np.exp(-skew * np.arange(experts))
    owner = rng.integers(0, ranks, experts).astype(np.int32)
    with groups(ranks) as group:
        for round_ in range(3):
            x = [rng.standard_normal((t, SMALL.hidden)).astype(np.float32) for t in tokens]
            # With replacement: a token may name one expert twice.
            ids = [rng.choice(experts, (t, top_k), p=odds / odds.sum()).astype(np.int32) for t in tokens]
            weights = [rng.random((t, top_k), np.float32) for t in tokens]
            layers = [moe(group[r], x[r], ids[r], owner, weights[r]) for r in range(ranks)]
            results = interleave(layers, randomly(seed) if round_ else None)

            for rank, (dispatched, combined) in enumerate(results):
                here = [owner[i].reshape(-1) == rank for i in ids]
                pairs = [np.repeat(x[r], top_k, axis=0)[here[r]] for r in range(ranks)]
                assert np.array_equal(dispatched.tokens, np.concatenate(pairs))
                assert np.array_equal(
                    dispatched.experts, np.concatenate([ids[r].reshape(-1)[here[r]] for r in range(ranks)])
                )
                expected = np.zeros_like(x[rank])
                for k in range(top_k):
                    expected += expert(x[rank], ids[rank][:, k]) * weights[rank][:, k : k + 1]
                assert np.array_equal(combined, expected)


def test_the_largest_batch_of_every_rank_fits_on_one_rank() -> None:
    ids = np.zeros((SMALL.max_tokens, SMALL.top_k), np.int32)
    x = np.ones((SMALL.max_tokens, SMALL.hidden), np.float32)
    weights = np.ones(ids.shape, np.float32)
    with groups(SMALL.max_peers) as group:
        owner = np.array([2], np.int32)
        results = interleave([moe(g, x, ids, owner, weights) for g in group])
    assert [len(dispatched.experts) for dispatched, _ in results] == [0, 0, SMALL.max_peers * ids.size, 0]
    assert all((combined == SMALL.top_k).all() for _, combined in results)


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=SMALL.max_peers), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_every_rank_sees_every_vote(words: list[int], seed: int) -> None:
    with groups(len(words)) as group:
        for _ in range(3):
            votes = [g.vote(word) for g, word in zip(group, words, strict=True)]
            assert interleave(votes, randomly(seed)) == [tuple(words)] * len(words)


def test_pending_is_level_triggered() -> None:
    with groups(2) as (a, b):
        assert not a.pending()
        vote = b.vote(5)
        next(vote)
        assert a.pending()
        assert a.pending()
        assert not b.pending()
        assert interleave([a.vote(4), vote]) == [(4, 5)] * 2
        assert not a.pending()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((2, 5), np.float64)}, "x must be a C-contiguous float32"),
        ({"x": np.zeros((2, 4), np.float32)}, "x must be"),
        ({"x": np.zeros((3, 5), np.float32)}, "x must be"),
        ({"x": np.zeros((5, 2), np.float32).T}, "x must be"),
        ({"expert_ids": np.full((2, 3), 4, np.int32)}, "expert ids must lie between 0 and 3, found 4..4"),
        ({"expert_ids": np.full((2, 3), -1, np.int32)}, r"found -1..-1"),
        ({"expert_ids": np.zeros((2, 4), np.int32)}, r"at most \(8, 3\)"),
        ({"x": np.zeros((9, 5), np.float32), "expert_ids": np.zeros((9, 3), np.int32)}, r"at most \(8, 3\)"),
        ({"owner": np.array([0, 0, 0, 1], np.int32)}, "owner names rank 1, the group has 1"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_sent(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "x": np.zeros((2, 5), np.float32),
        "expert_ids": np.full((2, 3), 3, np.int32),
        "owner": np.zeros(4, np.int32),
    }
    with groups(1) as (group,):
        with pytest.raises(ValueError, match=message):
            run(group.dispatch(**good | change), timeout=1)
        run(group.dispatch(**good), timeout=1)


def test_combine_refuses_results_that_do_not_fit_what_was_dispatched() -> None:
    with groups(1) as (group,):
        ids = np.zeros((2, 3), np.int32)
        dispatched = run(group.dispatch(np.zeros((2, 5), np.float32), ids, np.zeros(1, np.int32)), timeout=1)
        with pytest.raises(ValueError, match="y must be"):
            group.combine(np.zeros((5, 5), np.float32), dispatched, np.ones((2, 3), np.float32))
        with pytest.raises(ValueError, match="6 pairs were dispatched"):
            group.combine(dispatched.tokens, dispatched, np.ones((2, 2), np.float32))


@pytest.mark.parametrize("word", [-1, 1 << 63])
def test_a_vote_that_is_no_63_bit_number_is_refused(word: int) -> None:
    with groups(1) as (group,), pytest.raises(ValueError, match="63 bits"):
        group.vote(word)


def test_a_failed_collective_breaks_the_group() -> None:
    with groups(2) as (a, _):
        with pytest.raises(Timeout):
            run(a.vote(1), timeout=0)
        with pytest.raises(Broken, match="join the next epoch"):
            run(a.vote(1), timeout=0)


def test_two_collectives_at_once_are_refused() -> None:
    with groups(2) as (a, _):
        vote = a.vote(1)
        next(vote)
        with pytest.raises(Broken):
            next(a.vote(2))


def test_a_rank_that_ran_ahead_is_an_event_mismatch_not_silence() -> None:
    with groups(2) as (a, b):
        for _ in range(2):  # votes whose result is never awaited: a rank that skips ahead
            a._usable = True
            next(a.vote(0))
        a._usable = True
        next(a.vote(0))
        with pytest.raises(EventMismatch, match=r"waited for 1 .* already at 3"):
            run(b.vote(0), timeout=1)


def test_a_new_epoch_starts_afresh_and_ends_the_old_one() -> None:
    with endpoints(2, clock=iter(range(10_000)).__next__) as made:
        old = join(made, epoch=3)
        next(old[0].vote(9))  # left unfinished: nothing of it may show in the next epoch
        new = join(made, epoch=4)
        assert not new[1].pending()
        assert interleave([g.vote(g.rank) for g in new]) == [(0, 1)] * 2
        with pytest.raises(Broken, match="epoch 3: the group is in use, was left"):
            run(old[1].vote(1), timeout=1)


def test_a_peer_that_went_on_to_the_next_epoch_is_lost_to_this_one() -> None:
    with endpoints(2, clock=iter(range(10_000)).__next__) as made:
        old = join(made, epoch=3)
        with pytest.raises(Timeout):
            run(Group.join(made[0], epoch=4, rank=0, peers=[peer_of(e, r) for r, e in enumerate(made)]), timeout=0)
        with pytest.raises(PeerLost, match="rank 0: it has closed its memory"):
            run(old[1].vote(1), timeout=1)


@pytest.mark.parametrize("epoch", [2, 3])
def test_an_epoch_that_is_not_newer_is_refused(epoch: int) -> None:
    with endpoints(1) as made:
        join(made, epoch=3)
        with pytest.raises(StaleEpoch, match=f"epoch {epoch} is not newer than 3"):
            join(made, epoch=epoch)


def test_joining_may_be_tried_again_after_a_timeout() -> None:
    with endpoints(2) as made:
        peers = [peer_of(endpoint, rank) for rank, endpoint in enumerate(made)]
        with pytest.raises(Timeout):
            run(Group.join(made[0], epoch=1, rank=0, peers=peers), timeout=0)
        assert interleave([g.vote(g.rank) for g in join(made, epoch=1)]) == [(0, 1)] * 2


def test_a_peer_that_published_before_it_left_is_still_heard() -> None:
    with endpoints(2, clock=iter(range(10_000)).__next__) as made:
        a, b = join(made, epoch=1)
        vote = a.vote(7)
        next(vote)
        a.leave()
        assert run(b.vote(8), timeout=1) == (7, 8)
        with pytest.raises(PeerLost) as lost:
            run(b.vote(9), timeout=1)
        assert (lost.value.rank, lost.value.code) == (0, "peer_lost")


def test_joining_a_peer_that_is_not_there_fails_at_once() -> None:
    with endpoints(1) as (alone,):
        ghost = Peer(1, "ghost", f"shm://{alone.directory}/ghost")
        with pytest.raises(PeerLost, match="rank 1: there is no endpoint at"):
            run(Group.join(alone, epoch=1, rank=0, peers=[peer_of(alone), ghost]), timeout=1)


@pytest.mark.parametrize("ranks", [(0, 0), (0, 2), (1, 2)])
def test_ranks_must_count_from_zero(ranks: tuple[int, int]) -> None:
    with endpoints(2) as made, pytest.raises(ValueError, match="ranks must be"):
        run(
            Group.join(made[0], epoch=1, rank=0, peers=[peer_of(e, r) for e, r in zip(made, ranks, strict=True)]),
            timeout=1,
        )


def test_peers_with_another_layout_are_refused() -> None:
    other = Layout(max_peers=4, max_tokens=8, hidden=6, top_k=3)
    with endpoints(1) as (mine,), Endpoint.create(mine.directory, "theirs", other) as theirs:
        theirs.enter(1)
        joining = Group.join(mine, epoch=1, rank=0, peers=[peer_of(mine), peer_of(theirs, 1)])
        with pytest.raises(LayoutMismatch, match=r"its layout is \(4, 8, 6, 3"):
            run(joining, timeout=1)


class SlowMemory(MappedMemory):
    """Memory whose answers to reads take a while; `most` are under way at once in all such memories."""

    under_way = 0
    most = 0

    def read(self, offset: int, into: Buffer) -> Steps[None]:
        SlowMemory.under_way += 1
        SlowMemory.most = max(SlowMemory.most, SlowMemory.under_way)
        yield from (True, False, False)
        SlowMemory.under_way -= 1
        yield from super().read(offset, into)


def test_all_ranks_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes a while, as over TCP, is waited for together."""
    monkeypatch.setattr(MappedMemory, "at_once", None)  # as where nothing is mapped
    ranks, layout = 3, Layout(max_peers=3, max_tokens=3, hidden=4, top_k=3)
    memories = [SlowMemory(bytearray(layout.group_bytes)) for _ in range(ranks)]
    made = [AllToAll(rank, memories[rank], memories, layout, lambda: None) for rank in range(ranks)]
    x, ids = np.eye(3, 4, dtype=np.float32), np.tile(np.arange(3, dtype=np.int32), (3, 1))
    arrived = interleave([one.dispatch(x, route(ids, np.arange(3, dtype=np.int32), 3), False) for one in made])
    assert SlowMemory.most > ranks  # more than one a rank
    monkeypatch.setattr(SlowMemory, "most", 0)
    weights = np.ones((3, 3), np.float32)
    steps = [one.combine(each.tokens, each, weights) for one, each in zip(made, arrived, strict=True)]
    assert all(np.array_equal(combined, 3 * x) for combined in interleave(steps))
    assert SlowMemory.most > ranks  # more than one a rank
