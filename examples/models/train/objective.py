"""What is learned: the next token, and by the MTP layer the one after it.

Half of the MTP loss is about the true token, half about the one that the main model itself would say there: a draft
is accepted when the main model agrees, whether or not both are right.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from network import Loads, forward, head
from parameters import Params
from shape import Shape

MTP_WEIGHT = 0.3  # as DeepSeek-V3 begins (arXiv:2412.19437, section 4.2)


class Measured(NamedTuple):
    """Means over one batch."""

    loss: Array  # of the main model, nats a token
    mtp_loss: Array  # of the MTP layer on the true tokens
    accepted: Array  # share of the drafts that are what the main model says next
    loads: Loads


def objective(shape: Shape, params: Params, biases: Params, tokens: Array, learned: Array) -> tuple[Array, Measured]:
    """The loss of windows i32[B, S + 2], where f32[B, S + 2] says which tokens to learn, and its parts."""
    batch = len(tokens)
    output = forward(shape, params, biases, tokens[:, :-1])
    main, drafts = (head(params, hidden).reshape(batch, -1, shape.vocab_size) for hidden in (output.main, output.mtp))
    loss = _mean(_surprise(main, tokens[:, 1:-1]), learned[:, 1:-1])
    mtp_loss = _mean(_surprise(drafts, tokens[:, 2:]), learned[:, 2:])

    said = jax.lax.stop_gradient(main).argmax(-1)[:, 1:]
    imitation = _mean(_surprise(drafts[:, :-1], said), learned[:, 2:-1])
    accepted = _mean(drafts[:, :-1].argmax(-1) == said, learned[:, 2:-1])
    total = loss + MTP_WEIGHT * (mtp_loss + imitation) / 2
    return total, Measured(loss, mtp_loss, accepted, output.loads)


def _surprise(logits: Array, tokens: Array) -> Array:
    """-log of the probability of tokens i32[...] under logits f32[..., V]."""
    return jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, tokens[..., None], -1)[..., 0]


def _mean(values: Array, weights: Array) -> Array:
    return (values * weights).sum() / weights.sum()
