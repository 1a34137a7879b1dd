"""The scheduler under arbitrary use: no sequence is lost or run twice, and every block comes back."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flowserve.cache import BlockPool, SequenceKV
from flowserve.engine.scheduler import QueueFull, Scheduler, TooLarge
from flowserve.engine.sequence import Sequence, Stage
from flowserve.wire import GenerateRequest

BLOCKS, BLOCK, PLACES, WAITING = 8, 4, 3, 4


def sequence(pool: BlockPool, key: int, room: int) -> Sequence:
    request = GenerateRequest(request_id="r", prompt=(1,) * room, max_tokens=1)
    return Sequence(key, request, SequenceKV(pool), room)


class SchedulerMachine(RuleBasedStateMachine):
    """A model of who must be where, beside the real scheduler."""

    @initialize()
    def start(self) -> None:
        self.pool = BlockPool(BLOCKS, BLOCK, layers=1, width=1)
        self.scheduler = Scheduler(self.pool, PLACES, WAITING)
        self.waiting: OrderedDict[int, Sequence] = OrderedDict()
        self.batch: dict[int, Sequence] = {}
        self.flying: list[Sequence] = []
        self.keys = 0

    @rule(room=st.integers(1, BLOCKS * BLOCK + 1))
    def submit(self, room: int) -> None:
        self.keys += 1
        new = sequence(self.pool, self.keys, room)
        if room > BLOCKS * BLOCK:
            with pytest.raises(TooLarge):
                self.scheduler.submit(new)
        elif len(self.waiting) == WAITING:
            with pytest.raises(QueueFull):
                self.scheduler.submit(new)
        else:
            self.scheduler.submit(new)
            self.waiting[new.key] = new

    @rule(fetch=st.booleans())
    def admit(self, fetch: bool) -> None:
        stage = Stage.FETCHING if fetch else Stage.RUNNING
        for admitted in self.scheduler.admit(lambda _: stage):
            key, expected = self.waiting.popitem(last=False)
            assert admitted is expected
            self.batch[key] = admitted
        if self.waiting and len(self.batch) < PLACES:
            first = next(iter(self.waiting.values()))
            assert not self.pool.can_fit(first.room)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        key = data.draw(st.integers(0, self.keys + 1))
        self.scheduler.cancel(key)
        self.waiting.pop(key, None)
        if key in self.batch and self.batch[key] not in self.flying:
            del self.batch[key]

    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        fetching = [each for each in self.batch.values() if each.stage is Stage.FETCHING]
        if fetching:
            data.draw(st.sampled_from(fetching)).stage = Stage.RUNNING

    @precondition(lambda self: not self.flying)
    @rule(most=st.integers(1, PLACES))
    def begin(self, most: int) -> None:
        self.flying = list(self.scheduler.begin(most))
        running = [each for each in self.batch.values() if each.stage is Stage.RUNNING]
        assert self.flying == running[:most]
        for each in self.flying:
            each.kv.append(1 if each.kv.length < each.room else 0)

    @precondition(lambda self: self.flying)
    @rule(commit=st.booleans(), finish=st.booleans())
    def end(self, commit: bool, finish: bool) -> None:
        flying, self.flying = self.flying, []
        if commit:
            for each in flying:
                each.computed = each.kv.length
        computed = {each.key: each.computed for each in flying}
        remaining = self.scheduler.end()
        assert remaining == [each for each in flying if not each.cancelled]
        for each in flying:
            if each.cancelled:
                del self.batch[each.key]
            else:
                assert each.kv.length == computed[each.key]
        if finish and remaining:
            self.scheduler.release(remaining[0])
            del self.batch[remaining[0].key]

    @invariant()
    def counts_agree(self) -> None:
        assert self.scheduler.waiting == len(self.waiting)
        assert self.scheduler.running == len(self.batch)
        held = sum(self.pool.blocks_for(each.room) for each in self.batch.values())
        assert self.pool.free_blocks == BLOCKS - held
        assert all(len(each.kv.blocks) == self.pool.blocks_for(each.room) for each in self.batch.values())


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_large_request_is_not_overtaken() -> None:
    pool = BlockPool(BLOCKS, BLOCK, layers=1, width=1)
    scheduler = Scheduler(pool, PLACES, WAITING)
    for key, room in ((1, 20), (2, 16), (3, 4)):
        scheduler.submit(sequence(pool, key, room))
    assert [each.key for each in scheduler.admit(lambda _: Stage.RUNNING)] == [1]
    scheduler.cancel(1)
    assert [each.key for each in scheduler.admit(lambda _: Stage.RUNNING)] == [2, 3]
