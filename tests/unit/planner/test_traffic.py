from hypothesis import given
from hypothesis import strategies as st

from xdeepserve_operator.api.v1alpha1.base import RoleType
from xdeepserve_operator.planner.traffic import Entrance, targets


def entrances(**counts: tuple[int, int]) -> list[Entrance]:
    """Instances of each pair: prefill, decode."""
    found: list[Entrance] = []
    for pair, numbers in counts.items():
        roles: tuple[RoleType, ...] = ("Prefill", "Decode")
        for role, number in zip(roles, numbers, strict=True):
            found += [Entrance(f"{role}-{pair}-{one}".lower(), role, "127.0.0.1", pair) for one in range(number)]
    return found


def weights(**counts: tuple[int, int]) -> dict[str, int]:
    return {target.revision: target.weight for target in targets(entrances(**counts))}


def test_the_only_pair_has_all_of_it() -> None:
    assert weights(old=(1, 2)) == {"old": 100}
    assert weights(old=(0, 2)) == {"old": 100}, "half a pair is not hidden: the frontend says what is missing"


def test_the_weight_is_what_the_pair_could_carry() -> None:
    assert weights(old=(2, 6), new=(1, 2)) == {"old": 66, "new": 25}
    assert weights(old=(1, 1), new=(1, 1)) == {"old": 50, "new": 50}


def test_a_pair_that_lacks_a_role_carries_nothing() -> None:
    assert weights(old=(1, 1), new=(1, 0)) == {"old": 50, "new": 0}


def test_targets_come_by_name() -> None:
    names = [target.instance for target in targets(entrances(old=(2, 2), new=(1, 1)))]
    assert names == sorted(names)


@given(st.dictionaries(st.sampled_from("abc"), st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=3))
def test_weights_never_promise_more_than_there_is(counts: dict[str, tuple[int, int]]) -> None:
    found = weights(**counts)
    assert sum(found.values()) <= 102, "rounding up to 1 aside"
    for pair, (prefill, decode) in counts.items():
        if prefill and decode:
            assert found[pair] >= 1
