"""One decode iteration of a batch: draft, sample, verify, sample, accept.

The drafts of the iteration before stand behind each sequence's last token, and the model runs all of them as rows of
one pass. The first row's logits choose the next token, exactly as without drafts. While the token chosen is the draft,
the row of that draft is valid, and chooses the one after it. Then a drafter guesses at what follows.

Invariants:
* what is chosen does not depend on drafts. A row's logits are those of a pass of its own, and its random number is a
  function of (seed, position): so the tokens are the same with and without drafts, greedy or sampled, and so is their
  distribution. A draft is accepted with the probability that the model gives to it, which is the best that can be done
  with a drafter that names one token;
* at most one token is chosen that ends the answer, and none after it;
* the KV of drafts that were not accepted lies beyond what is committed, and the iteration's end takes it away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from flowserve.engine.role import Advance, as_array
from flowserve.engine.sequence import Chosen, Sequence
from flowserve.model import Experts, FloatArray, Model
from xccl import Steps


@dataclass(frozen=True)
class Run:
    """What an iteration chose for a sequence, before it is committed."""

    sequence: Sequence
    chosen: tuple[Chosen, ...]  # one or more
    hidden: FloatArray  # f32[chosen, H], the model's states that chose them, at positions from ``computed``
    wanted: int  # drafts that are of use: none behind a token that ends the answer, nor beyond its length


class Drafter(Protocol):
    """Guesses tokens."""

    def draft(self, runs: list[Run], experts: Experts) -> Steps[list[tuple[int, ...]]]:
        """Guesses at what follows each run, at most ``wanted``.

        However many runs there are, it takes part in the same collectives.
        """
        ...


class Decoding:
    """Decode iterations of one model; without a ``drafter``, of one token a sequence."""

    def __init__(self, model: Model, ends: frozenset[int], drafter: Drafter | None = None) -> None:
        self._model = model
        self._ends = ends
        self._drafter = drafter

    def step(self, batch: list[Sequence], experts: Experts) -> Steps[list[Advance]]:
        """One iteration of ``batch``, which may be empty, changing nothing but uncommitted KV."""
        rows = [(one, offset) for one in batch for offset in range(1 + len(one.drafts))]
        tokens = [token for one in batch for token in (one.tokens[-1], *one.drafts)]
        positions = [one.computed + offset for one, offset in rows]
        hidden = yield from self._model.step(
            as_array(tokens), as_array(positions), [one.kv for one, _ in rows], experts
        )
        runs = self._accept(batch, hidden)
        if self._drafter is None:
            return [Advance(run.sequence, 1, run.chosen) for run in runs]
        drafts = yield from self._drafter.draft(runs, experts)
        return [
            Advance(run.sequence, len(run.chosen), run.chosen, guess) for run, guess in zip(runs, drafts, strict=True)
        ]

    def _accept(self, batch: list[Sequence], hidden: FloatArray) -> list[Run]:
        if not batch:
            return []
        logits, runs, row = self._model.logits(hidden), [], 0
        for sequence in batch:
            chosen: list[Chosen] = []
            for offset, draft in enumerate((*sequence.drafts, None)):
                chosen.append(sequence.choose(logits[row + offset], chosen))
                ended = sequence.finish_reason(self._ends, chosen) is not None
                if ended or chosen[-1].token != draft:
                    break
            left = sequence.request.max_tokens - sequence.answered - len(chosen)
            states = hidden[row : row + len(chosen)]
            runs.append(Run(sequence, tuple(chosen), states, 0 if ended else max(left - 1, 0)))
            row += 1 + len(sequence.drafts)
        return runs
