"""Frames between an engine and its output process."""

from __future__ import annotations

import asyncio
import socket

import pytest

from flowserve.output.link import MAX_FRAME_BYTES, Cancel, Link, Submit, Tokens
from flowserve.wire import GenerateRequest


async def pair() -> tuple[Link, Link]:
    left, right = socket.socketpair()
    return await Link.over(left), await Link.over(right)


async def test_messages_arrive_whole_and_in_order_until_the_other_side_ends() -> None:
    engine, output = await pair()
    long = GenerateRequest(request_id="r", prompt=tuple(range(50_000)), max_tokens=1)
    sent = [Submit(key=1, request=long), Cancel(key=1), Tokens(key=2, index=0, tokens=(5,), finish_reason="stop")]

    async def send() -> None:
        for message in sent:
            output.send(message)
        await output.close()

    sending = asyncio.create_task(send())
    assert [message async for message in engine.messages()] == sent
    await sending
    await engine.close()


@pytest.mark.parametrize("frame", [(MAX_FRAME_BYTES + 1).to_bytes(4), (2).to_bytes(4) + b"{}"])
async def test_what_is_no_message_is_refused(frame: bytes) -> None:
    left, right = socket.socketpair()
    engine = await Link.over(left)
    with right:
        right.sendall(frame)
        with pytest.raises(ValueError, match=r"frame|kind"):
            await anext(aiter(engine.messages()))
    await engine.close()


async def test_a_side_that_dies_in_the_middle_of_a_frame_ends_the_link() -> None:
    left, right = socket.socketpair()
    engine = await Link.over(left)
    with right:
        right.sendall((100).to_bytes(4) + b"half")
    assert [message async for message in engine.messages()] == []
    await engine.close()


async def test_what_is_queued_for_a_side_that_died_is_lost_without_notice() -> None:
    left, right = socket.socketpair()
    engine = await Link.over(left)
    engine.send(Tokens(key=1, index=0, tokens=(5,) * 500_000))  # more than the socket takes at once
    right.close()
    await engine.close()
