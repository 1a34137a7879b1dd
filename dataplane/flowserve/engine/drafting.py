"""Drafts of the model's own MTP layer, applied once or several times.

The layer first reads what was accepted: each state of the main model with the token that was chosen from it. Its last
row guesses the token behind; applied again to its own state and that guess, it guesses one further. What it writes into
its plane of the KV for guesses lies beyond what is committed, as the main model's rows for them will.
"""

from __future__ import annotations

import numpy as np

from flowserve.engine.decoding import Run
from flowserve.engine.role import as_array
from flowserve.model import Experts, Model, MtpLayer
from xccl import Steps


class MtpDrafter:
    """At most ``most`` drafts a sequence; the layer's collective is met ``most`` times an iteration."""

    def __init__(self, model: Model, layer: MtpLayer, most: int) -> None:
        self._model = model
        self._layer = layer
        self._most = most

    def draft(self, runs: list[Run], experts: Experts) -> Steps[list[tuple[int, ...]]]:
        """The likeliest tokens behind each run. See ``Drafter``."""
        guesses: dict[int, list[int]] = {number: [] for number in range(len(runs))}
        live = [number for number, run in enumerate(runs) if run.wanted]
        following = [each.token for number in live for each in runs[number].chosen]
        positions = [runs[n].sequence.computed + i for n in live for i in range(len(runs[n].chosen))]
        rows = [runs[number].sequence.kv for number in live for _ in runs[number].chosen]
        hidden = np.concatenate([runs[number].hidden for number in live]) if live else None
        last = np.cumsum([len(runs[number].chosen) for number in live]) - 1
        for applied in range(1, self._most + 1):
            if hidden is None:
                yield from self._layer.idle(experts)
                continue
            out = yield from self._layer.step(
                self._model, hidden, as_array(following), as_array(positions), rows, last, experts
            )
            found = self._layer.logits(out).argmax(axis=1).tolist()
            for number, token in zip(live, found, strict=True):
                guesses[number].append(token)
            if applied == self._most:
                break
            on = [place for place, number in enumerate(live) if runs[number].wanted > applied]
            hidden = out[on] if on else None
            live, following = [live[place] for place in on], [found[place] for place in on]
            positions = [runs[n].sequence.computed + len(runs[n].chosen) + applied - 1 for n in live]
            rows, last = [runs[number].sequence.kv for number in live], np.arange(len(live))
            for kv, position in zip(rows, positions, strict=True):
                kv.append(max(position + 1 - kv.length, 0))
        return [tuple(each) for each in guesses.values()]
