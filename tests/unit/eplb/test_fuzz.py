"""Random inputs, as bad as they come: the benchmark runs many more of the same."""

import pytest

from xdeepserve_bench.eplb_fuzz import LAYERS, check

CASES, PARTS = 160, 8


@pytest.mark.parametrize("part", range(PARTS))
def test_no_random_input_breaks_a_plan(part: int) -> None:
    verdicts = {number: check(number) for number in range(part, CASES, PARTS)}
    assert {number: verdict for number, verdict in verdicts.items() if verdict.faults} == {}
    assert LAYERS * sum(not verdict.refused for verdict in verdicts.values()) > 100
