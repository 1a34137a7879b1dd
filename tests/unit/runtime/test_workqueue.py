"""The queue: no change lost, no key in two hands, failures wait and block nobody."""

import asyncio

from xdeepserve_operator.runtime.workqueue import FIRST_BACKOFF_SECONDS, Key, WorkQueue

A, B = Key("Pod", "n", "a"), Key("Pod", "n", "b")


async def taken(queue: WorkQueue) -> Key:
    async with asyncio.timeout(5):
        return (await queue.take())[0]


async def test_marks_fold_into_one_run():
    queue = WorkQueue()
    for _ in range(3):
        queue.mark(A)
    assert await taken(queue) == A
    queue.done(A)
    assert len(queue) == 0


async def test_a_mark_during_a_run_asks_for_another_but_not_at_once():
    queue = WorkQueue()
    queue.mark(A)
    await taken(queue)
    queue.mark(A)
    queue.mark(B)
    assert await taken(queue) == B, "A is in a worker's hands"
    queue.done(A)
    assert await taken(queue) == A


async def test_an_earlier_wish_beats_a_later_one_in_either_order():
    queue = WorkQueue()
    queue.mark(A, after=3600)
    queue.mark(A)
    assert await taken(queue) == A
    queue.mark(A)
    queue.mark(A, after=3600)
    queue.done(A)
    assert await taken(queue) == A


async def test_a_failure_backs_off_and_leaves_others_alone():
    queue = WorkQueue()
    queue.mark(A)
    await taken(queue)
    queue.mark(A)  # even a fresh mark does not defeat the back-off
    queue.done(A, failed=True)
    queue.mark(B)
    started = asyncio.get_running_loop().time()
    assert await taken(queue) == B
    assert await taken(queue) == A
    assert asyncio.get_running_loop().time() - started >= FIRST_BACKOFF_SECONDS * 0.9


async def test_a_wish_to_run_again_is_kept():
    queue = WorkQueue()
    queue.mark(A)
    await taken(queue)
    queue.done(A, again_after=0.0)
    assert await taken(queue) == A


async def test_takers_share_the_work_and_each_key_has_one_hand():
    queue, hands, seen = WorkQueue(), set(), []
    keys = [Key("Pod", "n", str(number)) for number in range(20)]

    async def worker():
        while True:
            key, _ = await queue.take()
            assert key not in hands
            hands.add(key)
            await asyncio.sleep(0)
            hands.remove(key)
            seen.append(key)
            queue.done(key)

    workers = [asyncio.create_task(worker()) for _ in range(4)]
    for key in keys * 3:
        queue.mark(key)
    async with asyncio.timeout(5):
        while len(queue) or hands:  # noqa: ASYNC110
            await asyncio.sleep(0)
    for task in workers:
        task.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    assert set(seen) == set(keys)


async def test_a_run_that_only_the_timer_asked_for_is_told_apart():
    queue = WorkQueue()
    queue.mark(A)
    assert await queue.take() == (A, True)
    queue.done(A, again_after=0.0)
    assert await queue.take() == (A, False)
    queue.mark(A)  # news while it runs
    queue.done(A, again_after=0.0)
    assert await queue.take() == (A, True)
    queue.done(A, failed=True)
    assert await queue.take() == (A, True), "what failed is tried in full"


async def test_nothing_is_remembered_of_a_key_that_has_rested():
    queue = WorkQueue()
    for rest in (0.0, 0.01):
        queue.mark(A)
        await taken(queue)
        queue.done(A, rest=rest)
        queue.mark(B, after=2 * rest)  # comes when A has rested
        assert await taken(queue) == B
        queue.done(B)
        assert not queue._states


async def test_a_key_that_is_asked_for_while_it_rests_is_not_lost():
    queue = WorkQueue()
    queue.mark(A)
    await taken(queue)
    queue.done(A, rest=0.01)
    queue.mark(A)
    queue.mark(B, after=0.05)
    assert [await taken(queue), await taken(queue)] == [A, B]


async def test_a_key_rests_after_a_long_pass_and_others_go_first():
    queue = WorkQueue()
    queue.mark(A)
    await taken(queue)
    queue.done(A, rest=0.1)
    queue.mark(A)
    queue.mark(B)
    started = asyncio.get_running_loop().time()
    assert await taken(queue) == B
    assert await taken(queue) == A
    assert asyncio.get_running_loop().time() - started >= 0.09
