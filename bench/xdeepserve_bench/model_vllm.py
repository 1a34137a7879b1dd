"""vLLM on the CPU as a worker of ``bench model``. A script: it runs in the peers' Python."""

import argparse
import os
import random
import statistics
import sys
from typing import Any

from model_worker import serve, timed

SEED = 7
SETTINGS = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
}
WARM_UP = 3  # steps, the first of which is the prefill


class Vllm:
    """vLLM's engine in this process, greedy, float32, without its prefix cache."""

    def __init__(self, directory: str) -> None:
        from vllm import LLM

        self._llm = LLM(
            directory,
            skip_tokenizer_init=True,
            dtype="float32",
            max_model_len=4096,
            max_num_batched_tokens=4096,
            enforce_eager=True,
            enable_prefix_caching=False,
        )
        self._vocabulary = self._llm.llm_engine.model_config.get_vocab_size()
        self._draw = random.Random(SEED)

    def decode(self, batch: int, prompt: int, steps: int) -> dict[str, float]:
        """The median of `steps` steps of the engine, scheduling and sampling included, as a server would run them."""
        engine, sampling = self._llm.llm_engine, self._sampling(WARM_UP + steps + 1)
        for number in range(batch):
            engine.add_request(str(number), self._prompt(prompt), sampling)
        for _ in range(WARM_UP):
            engine.step()
        seconds = statistics.median(timed(engine.step) for _ in range(steps))
        while engine.has_unfinished_requests():
            engine.step()
        return {"seconds": seconds}

    def prefill(self, tokens: int) -> dict[str, float]:
        """Seconds for one prompt and its first token."""
        prompt, sampling = self._prompt(tokens), self._sampling(1)
        return {"seconds": timed(lambda: self._llm.generate([prompt], sampling, use_tqdm=False))}

    def _prompt(self, tokens: int) -> dict[str, list[int]]:
        return {"prompt_token_ids": [self._draw.randrange(3, self._vocabulary) for _ in range(tokens)]}

    def _sampling(self, tokens: int) -> Any:
        from vllm import SamplingParams

        return SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    os.environ.update(SETTINGS)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what vLLM prints is no answer
    serve(Vllm(parser.parse_args().checkpoint), sys.stdin, answers)
