"""KV waits under a ticket until it was sent, dropped or forgotten; its blocks always come back."""

from __future__ import annotations

import pytest

from flowserve.cache import BlockPool, SequenceKV
from flowserve.transfer.tickets import NoTicket, TicketBook


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(4, 4, layers=1, width=1)


@pytest.fixture
def book() -> TicketBook:
    return TicketBook("me", capacity=2, lifetime=30)


def kv(pool: BlockPool) -> SequenceKV:
    sequence = SequenceKV(pool)
    sequence.append(5)
    return sequence


def test_a_pull_that_arrives_frees_the_blocks(book: TicketBook, pool: BlockPool) -> None:
    ticket = book.issue(kv(pool), now=0)
    assert book.take(ticket).length == 5
    assert pool.free_blocks == 2
    book.sent(ticket)
    assert pool.free_blocks == 4
    with pytest.raises(NoTicket, match="pulled before"):
        book.take(ticket)


def test_one_that_fails_may_be_tried_again_until_it_is_too_old(book: TicketBook, pool: BlockPool) -> None:
    ticket = book.issue(kv(pool), now=0)
    book.take(ticket)
    assert book.expire(now=31) == []
    book.failed(ticket)
    book.take(ticket)
    book.failed(ticket)
    assert book.expire(now=31) == [ticket]
    assert pool.free_blocks == 4


def test_nobody_pulls_twice_at_once(book: TicketBook, pool: BlockPool) -> None:
    ticket = book.issue(kv(pool), now=0)
    book.take(ticket)
    with pytest.raises(NoTicket, match="already"):
        book.take(ticket)


def test_a_ticket_dropped_while_it_is_sent_goes_when_the_sending_ends(book: TicketBook, pool: BlockPool) -> None:
    ticket = book.issue(kv(pool), now=0)
    book.take(ticket)
    book.drop(ticket)
    assert pool.free_blocks == 2
    book.failed(ticket)
    assert pool.free_blocks == 4


def test_tickets_of_an_earlier_life_are_unknown(book: TicketBook, pool: BlockPool) -> None:
    before = TicketBook("before", capacity=2, lifetime=30).issue(kv(pool), now=0)
    book.issue(kv(pool), now=0)
    for act in (book.take, book.drop):
        with pytest.raises(NoTicket, match="unknown"):
            act(before)


def test_the_book_says_when_it_is_full(book: TicketBook, pool: BlockPool) -> None:
    first = book.issue(kv(pool), now=0)
    assert not book.full
    book.issue(kv(pool), now=0)
    assert book.full
    book.drop(first)
    assert not book.full
