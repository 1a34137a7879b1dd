"""config.json: both spellings of rope, and a refusal that names the field for all that is not computed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flowserve.model import CheckpointError, ModelConfig, UnsupportedModel

from .checkpoints import TINY


def load(directory: Path, remove: tuple[str, ...] = (), **changes: Any) -> ModelConfig:
    values = json.loads((TINY / "config.json").read_text())
    values.update(changes)
    for name in remove:
        del values[name]
    (directory / "config.json").write_text(json.dumps(values))
    return ModelConfig.load(directory)


def test_both_spellings_of_rope_mean_the_same(tmp_path: Path) -> None:
    new = ModelConfig.load(TINY)
    parameters = json.loads((TINY / "config.json").read_text())["rope_parameters"]
    theta = parameters.pop("rope_theta")
    parameters["type"] = parameters.pop("rope_type")
    old = load(tmp_path, remove=("rope_parameters",), rope_theta=theta, rope_scaling=parameters)
    assert old == new
    assert new.rope.yarn is not None
    assert new.rope.yarn.factor == 4.0


def test_rope_without_scaling(tmp_path: Path) -> None:
    config = load(tmp_path, remove=("rope_parameters",), rope_theta=50_000, rope_scaling=None)
    assert config.rope.yarn is None
    assert config.rope.theta == 50_000
    assert config.softmax_scale == pytest.approx(24**-0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "architectures"),
        ({"architectures": None}, "architectures"),
        ({"attention_bias": True}, "attention_bias = True is not supported, only False"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"scoring_func": "softmax"}, "scoring_func = 'softmax' with topk_method = 'noaux_tc' is not supported"),
        ({"topk_method": "greedy"}, "topk_method"),
        ({"scoring_func": "softmax", "topk_method": "greedy"}, "norm_topk_prob with routed_scaling_factor = 2.5"),
        ({"moe_layer_freq": 2}, "moe_layer_freq"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings"),
        ({"rope_interleave": False}, "rope_interleave"),
        ({"num_key_value_heads": 2}, "num_key_value_heads"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config: quant_method = 'awq'"),
        ({"quantization_config": {"quant_method": "fp8", "fmt": "e5m2"}}, "fmt = 'e5m2'"),
        ({"rope_parameters": {"rope_type": "llama3"}}, "rope type 'llama3'"),
    ],
)
def test_other_mathematics_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModel, match=message) as refusal:
        load(tmp_path, **changes)
    assert str(tmp_path / "config.json") in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"quantization_config": {"quant_method": "fp8"}}, "weight_block_size is missing"),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128]}}, "two positive integers"),
        ({"hidden_size": "64"}, "hidden_size must be an integer in 1..131072, not '64'"),
        ({"hidden_size": 10**12}, "hidden_size must be an integer"),
        ({"vocab_size": True}, "vocab_size must be an integer"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be an integer"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps must be a number"),
        ({"routed_scaling_factor": -1}, "routed_scaling_factor must be in"),
        ({"norm_topk_prob": 1}, "norm_topk_prob must be true or false"),
        ({"n_group": 3}, "n_group = 3 must split n_routed_experts = 16"),
        ({"topk_group": 5}, "topk_group = 5 is above n_group = 4"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok = 9 is above the 8 experts"),
        ({"qk_rope_head_dim": 7}, "qk_rope_head_dim = 7 must be even"),
        ({"first_k_dense_replace": 5}, "first_k_dense_replace = 5 is above num_hidden_layers"),
        ({"eos_token_id": 320}, "eos_token_id must hold tokens in 0..319"),
        ({"rope_parameters": 3}, "rope_parameters must be an object"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters: factor is missing"),
    ],
)
def test_nonsense_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path, **changes)


def test_end_of_sequence_may_be_several_tokens(tmp_path: Path) -> None:
    assert ModelConfig.load(TINY).eos_token_ids == (1,)
    assert load(tmp_path, eos_token_id=[1, 7]).eos_token_ids == (1, 7)
    assert load(tmp_path, eos_token_id=None).eos_token_ids == ()


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff"])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"config\.json: "):
        ModelConfig.load(tmp_path)
