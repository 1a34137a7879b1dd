"""``top``: rates out of two samples, and rows for engines that say nothing."""

from flowserve.engine.iteration import Tally
from flowserve.engine.metrics import render
from flowserve.wire import EngineStatus
from xdeepserve_cli.top import COLUMNS, figures, row
from xdeepserve_operator.planner.pods import view_pod

from . import world

POD = view_pod(world.pod("chat-decode-0-dp0-0", "engine"))


def sample(tokens: int) -> dict[str, float] | None:
    state = EngineStatus(
        name="g", incarnation="i", fabric_uri="", state="Serving", epoch=4, running=2, waiting=1, kv_usage=0.5
    )
    return figures(render("m", state, Tally(tokens=tokens)))


def test_tokens_a_second_come_from_two_samples():
    line = row(POD, sample(100), sample(150), 2.0)
    assert (line.epoch, line.running, line.waiting, line.kv_usage, line.tokens_per_second) == (4, 2, 1, 0.5, 25.0)


def test_a_counter_that_went_back_gives_no_negative_rate():
    assert row(POD, sample(100), sample(3), 1.0).tokens_per_second == 0


def test_an_engine_heard_for_the_first_time_has_no_rate_yet():
    assert row(POD, None, sample(500), 1.0).tokens_per_second == 0


def test_an_engine_that_does_not_answer_is_listed():
    silent = row(POD, sample(1), None, 1.0)
    assert silent.cells()[2] == "no answer"
    assert len(silent.cells()) == len(COLUMNS)
