"""DeepSeek-V3 in JAX: the forward pass of the main model and of its MTP layer, for training.

No token is dropped: rows of (token, expert) are sorted by expert and packed into tiles of one expert each, of which
there are at most rows / TILE + E whatever the router does.
Sources: DeepSeek-V2, arXiv:2405.04434 (MLA); DeepSeek-V3, arXiv:2412.19437 (routing, MTP).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from parameters import EMBEDDING, FINAL_NORM, HEAD, Params, bias_name, layer_name
from products import product
from shape import Shape

TILE = 64
Loads = dict[int, Array]  # layer -> tokens that each expert got, over the tokens there were: f32[E], K in sum


class Output(NamedTuple):
    """Hidden states f32[B S, H] of S + 1 tokens a sequence, of which the main model sees the first S."""

    main: Array  # tell the token after each of the first S, through the head
    mtp: Array  # tell the token after that, through the same head
    loads: Loads


def forward(shape: Shape, params: Params, biases: Params, tokens: Array, exact: bool = False) -> Output:
    """Runs i32[B, S + 1] through the main model, and its hidden states with the tokens after them through MTP."""
    run = _Pass(shape, params, biases, tokens.shape[1] - 1, exact)
    embedded = params[f"{EMBEDDING}.weight"][tokens]
    x = embedded[:, :-1].reshape(-1, shape.hidden_size)
    for layer in range(shape.num_hidden_layers):
        x = run.decoder_layer(layer, x)
    hidden = run.norm(FINAL_NORM, x)

    name = layer_name(shape.num_hidden_layers)
    following = run.norm(f"{name}.enorm", embedded[:, 1:].reshape(-1, shape.hidden_size))
    both = jnp.concatenate([following, run.norm(f"{name}.hnorm", hidden)], axis=1)
    x = run.decoder_layer(shape.num_hidden_layers, run.linear(f"{name}.eh_proj", both))
    return Output(hidden, run.norm(f"{name}.shared_head.norm", x), run.loads)


def head(params: Params, hidden: Array, exact: bool = False) -> Array:
    """f32[T, H] -> f32[T, V]."""
    return product("ti,oi->to", hidden, params[f"{HEAD}.weight"], exact)


class _Pass:
    """One forward pass over sequences of `length` tokens; activations are f32[T, ...], sequence after sequence."""

    def __init__(self, shape: Shape, params: Params, biases: Params, length: int, exact: bool) -> None:
        self.shape, self.params, self.biases, self.exact = shape, params, biases, exact
        self.length = length
        self.loads: Loads = {}
        self._turns = _turns(shape, length)

    def linear(self, module: str, x: Array) -> Array:
        return product("ti,oi->to", x, self.params[f"{module}.weight"], self.exact)

    def norm(self, module: str, x: Array) -> Array:
        mean = jnp.square(x).mean(-1, keepdims=True)
        return x * jax.lax.rsqrt(mean + self.shape.rms_norm_eps) * self.params[f"{module}.weight"]

    def mlp(self, module: str, x: Array) -> Array:
        inner = jax.nn.silu(self.linear(f"{module}.gate_proj", x)) * self.linear(f"{module}.up_proj", x)
        return self.linear(f"{module}.down_proj", inner)

    def decoder_layer(self, layer: int, x: Array) -> Array:
        name = layer_name(layer)
        x = x + self._attention(f"{name}.self_attn", self.norm(f"{name}.input_layernorm", x))
        normed = self.norm(f"{name}.post_attention_layernorm", x)
        if layer not in self.shape.moe_layers:
            return x + self.mlp(f"{name}.mlp", normed)
        experts, gates = route(self.shape, self.linear(f"{name}.mlp.gate", normed), self.biases[bias_name(layer)])
        self.loads[layer] = jnp.bincount(experts.reshape(-1), length=self.shape.n_routed_experts) / len(x)
        return (
            x
            + self._experts(f"{name}.mlp.experts", normed, experts, gates)
            + self.mlp(f"{name}.mlp.shared_experts", normed)
        )

    def _attention(self, module: str, x: Array) -> Array:
        """Causal MLA in its naive form."""
        shape, heads = self.shape, self.shape.num_attention_heads
        nope, rank = shape.qk_nope_head_dim, shape.kv_lora_rank
        low = self.norm(f"{module}.q_a_layernorm", self.linear(f"{module}.q_a_proj", x))
        queries = self._rotate(self._by_head(self.linear(f"{module}.q_b_proj", low), heads))
        compressed = self.linear(f"{module}.kv_a_proj_with_mqa", x)
        latent = self.norm(f"{module}.kv_a_layernorm", compressed[:, :rank])
        expanded = self._by_head(self.linear(f"{module}.kv_b_proj", latent), heads)
        rotary = jnp.broadcast_to(
            self._by_head(compressed[:, rank:], 1), (*expanded.shape[:3], compressed.shape[1] - rank)
        )
        keys = self._rotate(jnp.concatenate([expanded[..., :nope], rotary], axis=-1))
        scale = shape.rope.softmax_factor() * queries.shape[-1] ** -0.5
        scores = product("bhqd,bhkd->bhqk", queries * scale, keys, self.exact)
        scores = jnp.where(jnp.tri(self.length, dtype=bool), scores, -1e30)
        mixed = product("bhqk,bhkd->bhqd", jax.nn.softmax(scores), expanded[..., nope:], self.exact)
        return self.linear(f"{module}.o_proj", mixed.swapaxes(1, 2).reshape(len(x), -1))

    def _by_head(self, x: Array, heads: int) -> Array:
        """f32[T, heads * D] -> f32[B, heads, S, D]."""
        return x.reshape(-1, self.length, heads, x.shape[1] // heads).swapaxes(1, 2)

    def _rotate(self, x: Array) -> Array:
        """Turns the rotary pairs at the end of f32[B, heads, S, nope + rope] by their positions."""
        cos, sin, swap = self._turns
        return x * cos + (x @ swap) * sin

    def _experts(self, module: str, x: Array, experts: Array, gates: Array) -> Array:
        """The gated sum of the routed experts i32[T, K] of each token."""
        gate_up, down = self.params[f"{module}.gate_up"], self.params[f"{module}.down"]
        place, source, expert = pack(experts, len(gate_up))
        # Not gate_up[expert]: adding up the gradient of an index is slow, that of a product is not.
        chosen = jax.nn.one_hot(expert, len(gate_up))
        packed = jnp.concatenate([x, jnp.zeros_like(x[:1])])[source].reshape(len(expert), TILE, -1)
        gate_up = product("ne,efh->nfh", chosen, gate_up, True)
        gate, up = jnp.split(product("nth,nfh->ntf", packed, gate_up, self.exact), 2, axis=-1)
        down = product("ne,ehf->nhf", chosen, down, True)
        outputs = product("ntf,nhf->nth", jax.nn.silu(gate) * up, down, self.exact)
        rows = outputs.reshape(len(source), -1)[place].reshape(*experts.shape, -1)
        return (rows * gates[:, :, None]).sum(1)


def _turns(shape: Shape, length: int) -> tuple[Array, Array, Array]:
    """Cosines and sines f32[S, D] (1 and 0 in the part that does not turn), and the matrix that swaps pairs."""
    nope, rope = shape.qk_nope_head_dim, shape.qk_rope_head_dim
    angles = jnp.repeat(jnp.arange(length)[:, None] * shape.rope.frequencies(), 2, axis=1)
    angles = jnp.pad(angles, ((0, 0), (nope, 0)))
    even = nope + jnp.arange(0, rope, 2)
    swap = jnp.zeros((nope + rope, nope + rope)).at[even, even + 1].set(1.0).at[even + 1, even].set(-1.0)
    return jnp.cos(angles), jnp.sin(angles), swap


def route(shape: Shape, logits: Array, bias: Array) -> tuple[Array, Array]:
    """Experts i32[T, K] and gates f32[T, K] from router logits f32[T, E]: group-limited, by affinity plus bias."""
    affinity = jax.nn.sigmoid(logits)
    choice = jax.lax.stop_gradient(affinity) + bias
    grouped = choice.reshape(len(choice), shape.n_group, -1)
    worth = jax.lax.top_k(grouped, 2)[0].sum(-1)
    kept = jax.nn.one_hot(jax.lax.top_k(worth, shape.topk_group)[1], shape.n_group).sum(1)
    choice = jnp.where(kept[:, :, None] > 0, grouped, -jnp.inf).reshape(choice.shape)
    _, experts = jax.lax.top_k(choice, shape.num_experts_per_tok)
    gates = jnp.take_along_axis(affinity, experts, axis=1)
    return experts, gates / (gates.sum(-1, keepdims=True) + 1e-20) * shape.routed_scaling_factor


def pack(experts: Array, count: int) -> tuple[Array, Array, Array]:
    """Where the rows of tokens sent to i32[T, K] of `count` experts lie when packed by expert into tiles.

    Returns the place of each row i32[T K], the token at each place i32[tiles TILE] (T where there is none), and the
    expert of each tile i32[tiles].
    """
    flat = experts.reshape(-1)
    rows_in = jnp.bincount(flat, length=count)
    tiles_in = -(-rows_in // TILE)
    tile_end = jnp.cumsum(tiles_in)
    order = jnp.argsort(flat, stable=True)
    shift = (tile_end - tiles_in) * TILE - (jnp.cumsum(rows_in) - rows_in)
    place = jnp.zeros_like(flat).at[order].set(jnp.arange(len(flat)) + shift[flat[order]])

    tiles = -(-len(flat) // TILE) + count
    source = jnp.full(tiles * TILE, len(experts)).at[place].set(jnp.arange(len(flat)) // experts.shape[1])
    expert = jnp.minimum(jnp.searchsorted(tile_end, jnp.arange(tiles), side="right"), count - 1)
    return place, source, expert
