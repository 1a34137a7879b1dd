"""transformers on the CPU as a worker of ``bench model``. A script: it runs in the peers' Python."""

import argparse
import os
import statistics
import sys

import torch
from model_worker import serve, timed
from transformers import AutoModelForCausalLM

SEED = 7


class Transformers:
    """Greedy decoding with a dynamic cache, in float32."""

    def __init__(self, directory: str) -> None:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        torch.set_grad_enabled(False)
        self._model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        self._draw = torch.Generator().manual_seed(SEED)

    def decode(self, batch: int, prompt: int, steps: int) -> dict[str, float]:
        """The median of `steps` steps after prompts of `prompt` tokens."""
        out = self._model(self._tokens(batch, prompt), use_cache=True)

        def step() -> None:
            nonlocal out
            tokens = out.logits[:, -1:].argmax(dim=-1)
            out = self._model(tokens, past_key_values=out.past_key_values, use_cache=True)

        step()
        return {"seconds": statistics.median(timed(step) for _ in range(steps))}

    def prefill(self, tokens: int) -> dict[str, float]:
        """Seconds for one prompt, with the logits of its last token only."""
        prompt = self._tokens(1, tokens)
        return {"seconds": timed(lambda: self._model(prompt, use_cache=True, logits_to_keep=1))}

    def _tokens(self, batch: int, count: int) -> torch.Tensor:
        return torch.randint(3, self._model.config.vocab_size, (batch, count), generator=self._draw)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    serve(Transformers(parser.parse_args().checkpoint), sys.stdin, sys.stdout)
