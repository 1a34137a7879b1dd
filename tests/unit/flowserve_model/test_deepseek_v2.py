"""DeepSeek-V2's variants: no q-LoRA, softmax scores, groups worth their best expert. The numbers are transformers'."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flowserve.cache import SequenceKV
from flowserve.model import ExpertWeights, LocalExperts, Model, Weights

from .checkpoints import ROOT, random_checkpoint
from .driver import finish

LITE = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "vocab_size": 50,
    "num_hidden_layers": 3,
    "q_lora_rank": None,
    "n_shared_experts": 2,
    "scoring_func": "softmax",
    "topk_method": "greedy",
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": False,
    "routed_scaling_factor": 1.0,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
GROUPED = LITE | {
    "q_lora_rank": 32,
    "topk_method": "group_limited_greedy",
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 4.0,
}


@pytest.mark.parametrize(("name", "config"), [("lite", LITE), ("grouped", GROUPED)])
def test_agrees_with_the_reference(tmp_path: Path, name: str, config: dict[str, object]) -> None:
    weights = Weights.open(random_checkpoint(tmp_path, config))
    model, experts = Model(weights, max_batch=2), LocalExperts(ExpertWeights(weights))
    pool = model.new_pool(num_blocks=8, block_size=8)
    with np.load(ROOT / "tests/data/tiny-deepseek-v2/golden.npz") as golden:
        tokens, expected = golden["input_ids"], golden[f"logits_{name}"]
    stepped = SequenceKV(pool)
    for position, token in enumerate(tokens):
        one = np.array([token], np.int32), np.array([position], np.int32)
        logits = finish(model.decode(*one, [stepped], experts))[0]
        np.testing.assert_allclose(logits, expected[position], rtol=0, atol=1e-4)
    last = finish(model.prefill(tokens.astype(np.int32), 0, SequenceKV(pool), experts))
    np.testing.assert_allclose(last, expected[-1], rtol=0, atol=1e-4)
