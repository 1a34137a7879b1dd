"""The completion queue: what is posted makes progress only when asked, in the order of its lane."""

from __future__ import annotations

import pytest
from xccl_world import SMALL, endpoints, interleave, peer_of

from xccl import Channel, Completion, CompletionQueue, Steps, Timeout

CAPACITY = SMALL.ring_slots * SMALL.slot_bytes


def count_to(number: int, seen: list[str], name: str) -> Steps[int]:
    for i in range(number):
        seen.append(f"{name}{i}")
        yield True
    return number


def fail() -> Steps[None]:
    yield True
    raise ValueError("no")


def test_posting_starts_and_polling_goes_on() -> None:
    queue, seen = CompletionQueue(), list[str]()
    queue.post(count_to(2, seen, "a"), "first", lane="a", timeout=9)
    assert (seen, len(queue)) == (["a0"], 1)
    assert queue.poll() == []
    assert queue.poll() == [Completion("first", 2)]
    assert (queue.poll(), len(queue)) == ([], 0)


def test_a_lane_keeps_its_order_and_lanes_do_not_wait_for_each_other() -> None:
    queue, seen = CompletionQueue(), list[str]()
    queue.post(count_to(2, seen, "a"), 1, lane="a", timeout=9)
    queue.post(count_to(1, seen, "b"), 2, lane="a", timeout=9)
    queue.post(count_to(1, seen, "c"), 3, lane="c", timeout=9)
    assert seen == ["a0", "c0"]
    tokens = [[completion.token for completion in queue.poll()] for _ in range(3)]
    assert tokens == [[3], [1], [2]]
    assert seen == ["a0", "c0", "a1", "b0"]


def test_an_error_is_a_completion_and_the_lane_goes_on() -> None:
    queue = CompletionQueue()
    queue.post(fail(), "bad", lane=0, timeout=9)
    queue.post(count_to(0, [], ""), "good", lane=0, timeout=9)
    bad, good = queue.wait(timeout=1)
    assert (bad.token, str(bad.error), good) == ("bad", "no", Completion("good", 0))


def test_a_post_has_a_limit_of_its_own() -> None:
    ticks = iter([0.0, 0.0, 5.0])
    queue = CompletionQueue(clock=ticks.__next__)
    queue.post(count_to(99, [], ""), "late", lane=0, timeout=5)
    [late] = queue.poll()
    assert isinstance(late.error, Timeout)


def test_waiting_ends_with_the_first_completion_or_when_nothing_is_posted() -> None:
    queue = CompletionQueue()
    assert queue.wait(timeout=0) == []
    queue.post(count_to(5, [], ""), "x", lane=0, timeout=9)
    assert queue.wait(timeout=1) == [Completion("x", 5)]
    queue.post(count_to(10**9, [], ""), "y", lane=0, timeout=9)
    with pytest.raises(Timeout):
        queue.wait(timeout=0.01)
    queue.close()
    assert len(queue) == 0


def test_sends_are_in_the_ring_when_they_are_posted() -> None:
    with endpoints(2) as made:
        sender, receiver = interleave(
            [Channel.connect(made[0], peer_of(made[1])), Channel.connect(made[1], peer_of(made[0]))]
        )
        queue = CompletionQueue()
        messages = [b"a", bytes(CAPACITY + 1), b"c"]
        for event, message in enumerate(messages, 1):
            queue.post(sender.send(message, event=event), event, lane=sender, timeout=9)
        into = bytearray(2 * CAPACITY)
        assert receiver.receive_now(into, event=1, timeout=1) == 1
        received: list[object] = []
        for event in (2, 3):
            queue.post(receiver.receive(bytearray(2 * CAPACITY), event=event), -event, lane=receiver, timeout=9)
        while len(queue):
            received += [(completion.token, completion.result) for completion in queue.poll()]
        assert sorted(received, key=str) == [(-2, CAPACITY + 1), (-3, 1), (1, None), (2, None), (3, None)]
