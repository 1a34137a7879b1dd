"""One request with several answers."""

from flowserve.frontend.job import Job, answer_seed
from flowserve.wire import Sampling


def test_answers_of_one_request_have_seeds_of_their_own():
    seeds = [answer_seed(7, answer) for answer in range(50)]
    assert seeds[0] == 7
    assert len(set(seeds)) == 50
    assert all(Sampling(seed=seed) for seed in seeds)
    assert answer_seed(8, 1) != answer_seed(7, 1)


def test_an_answer_is_a_job_like_the_whole_but_for_its_name_and_seed():
    job = Job("r", (1, 2), 3, Sampling(seed=7, top_k=5), logprobs=2, answers=2)
    assert job.answer(0) == Job("r", (1, 2), 3, Sampling(seed=7, top_k=5), logprobs=2)
    second = job.answer(1)
    assert (second.request_id, second.answers, second.sampling.top_k) == ("r.1", 1, 5)
    assert second.sampling.seed == answer_seed(7, 1)
