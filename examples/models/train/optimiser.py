"""Muon for the matrices inside the layers, Adam for everything else, and the routers' biases.

Muon (K. Jordan et al., 2024) replaces a matrix's averaged gradient by the nearest orthogonal matrix, found by five
steps of a Newton-Schulz iteration: every direction gets the same step. It learns from far fewer tokens than Adam,
which is what counts on a small computer. Stacked experts are as many matrices.

Biases follow DeepSeek-V3 (arXiv:2412.19437, section 2.1.2): up by a fixed step for an expert with too few tokens, down
for one with too many, without a gradient. Here that happens outside of a band around the mean only, so that no expert
starves and none takes everything, but the load stays as uneven as the text makes it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from network import Loads
from parameters import EMBEDDING, HEAD, Params, bias_name

MUON_RATE, ADAM_RATE = 0.02, 0.003
MUON_MOMENTUM, ADAM_MOMENTS = 0.95, (0.9, 0.98)
DECAY = 0.05  # of Muon's matrices, times the rate
CLIP = 1.0
BIAS_STEP = 0.003
BAND = (1 / 3, 3.0)  # loads over the mean load that are left alone
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


class State(NamedTuple):
    """`second` is empty for the parameters that Muon moves."""

    params: Params
    biases: Params
    first: Params
    second: Params


def start(params: Params, biases: Params) -> State:
    first = {name: jnp.zeros_like(value) for name, value in params.items()}
    second = {name: jnp.zeros_like(value) for name, value in params.items() if not _by_muon(name, value)}
    return State(params, biases, first, second)


def step(state: State, gradients: Params, loads: Loads, number: Array, rate: Array) -> State:
    """The state after step `number` (from 0) with learning rates times `rate`."""
    norm = jnp.sqrt(sum(jnp.square(gradient).sum() for gradient in gradients.values()))
    scale = jnp.minimum(1.0, CLIP / (norm + 1e-6))
    params, first, second = {}, {}, {}
    for name, gradient in gradients.items():
        value, gradient = state.params[name], gradient * scale
        if name in state.second:
            moments = state.first[name], state.second[name]
            change, first[name], second[name] = _adam(gradient, *moments, number)
            params[name] = value - ADAM_RATE * rate * change
        else:
            first[name] = MUON_MOMENTUM * state.first[name] + gradient
            change = _orthogonal(gradient + MUON_MOMENTUM * first[name])
            params[name] = value * (1.0 - MUON_RATE * rate * DECAY) - MUON_RATE * rate * change
    biases = state.biases | {
        bias_name(layer): balanced(state.biases[bias_name(layer)], load) for layer, load in loads.items()
    }
    return State(params, biases, first, second)


def balanced(bias: Array, load: Array) -> Array:
    """The correction bias after a batch in which experts had `load`, f32[E]."""
    over = load / load.mean()
    return bias + BIAS_STEP * ((over < BAND[0]).astype(jnp.float32) - (over > BAND[1]))


def _by_muon(name: str, value: Array) -> bool:
    return value.ndim > 1 and not name.startswith((EMBEDDING, HEAD)) and "mlp.gate." not in name


def _adam(gradient: Array, first: Array, second: Array, number: Array) -> tuple[Array, Array, Array]:
    beta, gamma = ADAM_MOMENTS
    first = beta * first + (1 - beta) * gradient
    second = gamma * second + (1 - gamma) * jnp.square(gradient)
    mean, power = first / (1 - beta ** (number + 1)), second / (1 - gamma ** (number + 1))
    return mean / (jnp.sqrt(power) + 1e-8), first, second


def _orthogonal(matrix: Array) -> Array:
    """Roughly U V' of the decomposition U S V' of each matrix f32[..., out, in], larger for one with more rows."""
    rows, columns = matrix.shape[-2:]
    a, b, c = _NEWTON_SCHULZ
    x = matrix if rows <= columns else matrix.swapaxes(-1, -2)
    x = x / (jnp.linalg.norm(x, axis=(-2, -1), keepdims=True) + 1e-7)
    for _ in range(5):
        square = x @ x.swapaxes(-1, -2)
        x = a * x + (b * square + c * square @ square) @ x
    return (x if rows <= columns else x.swapaxes(-1, -2)) * max(1.0, rows / columns) ** 0.5
