"""Dies are handed out once, and only healthy ones."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from xdeepserve_cluster.agent.devices import DieAllocator, NoDies, split_dies, wanted_dies

DIES = range(16)


class Allocation(RuleBasedStateMachine):
    """Pods come and go, dies break and mend, in any order."""

    pods = Bundle("pods")

    def __init__(self) -> None:
        super().__init__()
        self.allocator = DieAllocator(DIES)
        self.unhealthy: set[int] = set()
        self.started = 0
        self.held: dict[str, tuple[int, ...]] = {}

    @rule(target=pods, count=st.integers(0, 16))
    def start(self, count: int) -> str:
        self.started += 1
        uid = f"pod-{self.started}"
        taken = {die for dies in self.held.values() for die in dies}
        free = sorted(set(DIES) - taken - self.unhealthy)
        try:
            dies = self.allocator.allocate(uid, count, self.unhealthy)
        except NoDies:
            assert len(free) < count
            dies = ()
        else:
            assert dies == tuple(free[:count])
        self.held[uid] = dies
        return uid

    @rule(uid=consumes(pods))
    def end(self, uid: str) -> None:
        self.allocator.release(uid)
        self.held.pop(uid, None)

    @rule(die=st.sampled_from(DIES))
    def breaks(self, die: int) -> None:
        self.unhealthy.add(die)

    @rule(die=st.sampled_from(DIES))
    def mends(self, die: int) -> None:
        self.unhealthy.discard(die)

    @invariant()
    def everyone_keeps_what_he_got(self) -> None:
        assert {uid: self.allocator.held(uid) for uid in self.held} == self.held


Allocation.TestCase.settings = settings(max_examples=50, deadline=None)
TestAllocation = Allocation.TestCase


def test_a_refusal_changes_nothing() -> None:
    allocator = DieAllocator(range(4))
    allocator.allocate("a", 2, set())
    with pytest.raises(NoDies, match="requested 2 dies, 1 healthy ones are free"):
        allocator.allocate("b", 2, {3})
    assert allocator.free(set()) == [2, 3]


def test_dies_of_before_a_restart_come_back_unless_taken() -> None:
    allocator = DieAllocator(range(4))
    assert allocator.restore("a", {3, 1})
    assert allocator.restore("a", {1, 3})  # twice is harmless
    assert not allocator.restore("b", {3, 0})
    assert allocator.held("b") == ()
    assert not allocator.restore("c", {99})


def test_containers_get_their_dies_in_order() -> None:
    def container(name: str, **limits: str) -> dict[str, object]:
        return {"name": name, "resources": {"limits": limits}}

    containers = [container("a", **{"huawei.com/Ascend910": "2"}), container("b", cpu="1"), {"name": "c"}]
    containers.append(container("d", **{"huawei.com/Ascend910": "1"}))
    wanted = wanted_dies({"spec": {"containers": containers}})
    assert wanted == {"a": 2, "d": 1}
    assert split_dies(wanted, (4, 7, 9)) == {"a": (4, 7), "d": (9,)}
