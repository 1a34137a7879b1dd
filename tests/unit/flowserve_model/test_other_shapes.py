"""Sizes that the example does not tell apart: a model whose dimensions all differ agrees with itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flowserve.cache import SequenceKV
from flowserve.model import ExpertWeights, LocalExperts, Model, Weights

from .checkpoints import random_checkpoint
from .driver import finish

ODD = {
    "vocab_size": 50,
    "hidden_size": 24,
    "intermediate_size": 17,
    "moe_intermediate_size": 11,
    "num_hidden_layers": 2,
    "first_k_dense_replace": 0,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "q_lora_rank": 7,
    "kv_lora_rank": 5,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 10,
    "n_routed_experts": 5,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "rope_parameters": None,
    "rope_theta": 500.0,
}


def test_prefill_and_decode_agree_in_a_model_of_odd_sizes(tmp_path: Path) -> None:
    weights = Weights.open(random_checkpoint(tmp_path, ODD))
    model, experts = Model(weights, max_batch=3), LocalExperts(ExpertWeights(weights))
    pool = model.new_pool(num_blocks=20, block_size=5)
    tokens = np.random.default_rng(6).integers(0, 50, 23, dtype=np.int32)
    whole, stepped = SequenceKV(pool), SequenceKV(pool)
    expected = finish(model.prefill(tokens, 0, whole, experts))
    for position in range(len(tokens)):
        here = slice(position, position + 1)
        logits = finish(model.decode(tokens[here], np.array([position], np.int32), [stepped], experts))
    np.testing.assert_allclose(logits[0], expected, rtol=0, atol=1e-4)
    np.testing.assert_allclose(stepped.export(), whole.export(), rtol=0, atol=1e-4)
