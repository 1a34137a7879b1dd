"""Pod addresses are unique, ours, and used again late."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdeepserve_cluster.agent import addresses as module
from xdeepserve_cluster.agent.addresses import Addresses


@given(st.text(max_size=20), st.integers(1, 600))
def test_addresses_are_unique_and_in_the_range(seed: str, count: int) -> None:
    addresses = Addresses(seed)
    taken = [addresses.take(str(pod)) for pod in range(count)]
    assert len(set(taken)) == count
    assert all(ip_address(address) in ip_network("127.16.0.0/12") for address in taken)
    assert [addresses.take(str(pod)) for pod in range(count)] == taken


def test_a_released_address_is_not_the_next_one() -> None:
    addresses = Addresses("x")
    first = addresses.take("a")
    addresses.release("a")
    assert addresses.take("b") != first


def test_the_end_of_the_range_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NETWORK", ip_network("127.16.0.0/30"))
    addresses = Addresses("x")
    assert sorted(addresses.take(pod) for pod in "abc") == ["127.16.0.1", "127.16.0.2", "127.16.0.3"]


def test_what_a_pod_had_comes_back_to_it_alone() -> None:
    addresses = Addresses("x")
    assert addresses.restore("a", "127.20.1.1")
    assert addresses.take("a") == "127.20.1.1"
    assert not addresses.restore("b", "127.20.1.1")
    for foreign in ("10.0.0.1", "127.0.0.1", "::1", "nonsense", ""):
        assert not addresses.restore("c", foreign)


def test_clusters_start_at_different_places() -> None:
    assert Addresses("/state/a").take("pod") != Addresses("/state/b").take("pod")
