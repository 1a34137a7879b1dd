"""A streaming client for OpenAI's chat API over plain HTTP, which keeps the token ids and times of what it gets.

It never raises for what the server or the network does: whatever happens to a stream is part of its result. A stream
that ends without ``[DONE]`` has failed, however much of it arrived.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import aiohttp

from flowserve.frontend.relay import LineSplitter, StreamCorrupted
from xdeepserve_demo.verdict import StreamError, StreamResult, Verdict, verify

__all__ = ["StreamError", "StreamResult", "Verdict", "run_load", "stream_chat", "verify"]

TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=120)
BROKEN_OFF = StreamError("broken_off", "the stream ended without [DONE]", retryable=True)


async def stream_chat(
    base_url: str,
    model: str,
    prompt: str,
    max_tokens: int,
    *,
    session: aiohttp.ClientSession | None = None,
    api_key: str | None = None,
    temperature: float = 0.0,
    seed: int | None = None,
    ignore_eos: bool = False,
    into: StreamResult | None = None,
) -> StreamResult:
    """Streams the answer to one user message; greedy unless told otherwise. ``session`` is reused, not closed.

    ``into`` is what is returned, for those who look at it while it grows.
    """
    document = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": temperature,
        "seed": seed,
        "stream": True,
        "return_token_ids": True,
        "ignore_eos": ignore_eos,
    }
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    stream = _Stream(into or StreamResult())
    url = f"{base_url}/v1/chat/completions"
    async with nullcontext(session) if session else aiohttp.ClientSession() as http:
        try:
            async with http.post(url, json=document, headers=headers, timeout=TIMEOUT) as response:
                await _follow(response, stream)
        except (aiohttp.ClientError, OSError) as error:
            stream.end(StreamError("connection_lost", str(error) or type(error).__name__, retryable=True))
        except (StreamCorrupted, ValueError, LookupError, TypeError, AttributeError) as error:
            stream.end(StreamError("malformed", f"{type(error).__name__}: {error}", retryable=False))
    return stream.result


async def run_load(
    base_url: str,
    model: str,
    prompts: Sequence[str],
    concurrency: int,
    *,
    max_tokens: int,
    ignore_eos: bool = False,
) -> list[StreamResult]:
    """Streams the answers to all prompts, ``concurrency`` at a time; results in the order of the prompts."""
    room = asyncio.Semaphore(concurrency)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=concurrency)) as session:

        async def one(prompt: str) -> StreamResult:
            async with room:
                return await stream_chat(base_url, model, prompt, max_tokens, session=session, ignore_eos=ignore_eos)

        return await asyncio.gather(*map(one, prompts))


async def _follow(response: aiohttp.ClientResponse, stream: "_Stream") -> None:
    if response.status != 200:
        stream.end(_refusal(response.status, await response.text(errors="replace")))
        return
    lines = LineSplitter()
    async for chunk in response.content.iter_any():
        for line in lines.feed(chunk):
            if line.startswith(b"data:") and not stream.over:
                stream.take(line.removeprefix(b"data:").strip())
    stream.end(BROKEN_OFF)


def _refusal(status: int, body: str) -> StreamError:
    retryable = status in (429, 502, 503, 504)
    try:
        error = json.loads(body)["error"]
        return StreamError(str(error["code"]), str(error["message"]), retryable)
    except (ValueError, KeyError, TypeError):
        return StreamError(f"http_{status}", body[:200], retryable)


class _Stream:
    """One answer as it arrives; the first end counts."""

    def __init__(self, result: StreamResult) -> None:
        self.result = result
        self.over = False
        self._began = self._last = time.monotonic()

    def take(self, data: bytes) -> None:
        """One event's data."""
        if data == b"[DONE]":
            self.end(None)
            return
        document: dict[str, Any] = json.loads(data)
        if "error" in document:
            error = document["error"]
            self.end(StreamError(str(error["code"]), str(error["message"]), bool(error.get("retryable"))))
            return
        self.result.prompt_token_ids += document.get("prompt_token_ids", [])
        for choice in document["choices"]:
            self._tokens(choice.get("token_ids") or [])
            self.result.text += choice["delta"].get("content") or ""
            self.result.finish_reason = choice["finish_reason"] or self.result.finish_reason

    def end(self, error: StreamError | None) -> None:
        """The stream is over; later ends are ignored."""
        if not self.over:
            self.over = True
            self.result.error = error
            self.result.duration_s = time.monotonic() - self._began

    def _tokens(self, tokens: list[int]) -> None:
        if not tokens:
            return
        now = time.monotonic()
        if self.result.token_ids:
            self.result.gaps.append(now - self._last)
        else:
            self.result.ttft_s = now - self._began
        self._last = now
        self.result.token_ids += tokens
