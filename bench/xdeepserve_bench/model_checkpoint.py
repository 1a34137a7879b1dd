"""A random checkpoint of about 250 million parameters with DeepSeek's own head sizes, the same for every peer.

Weights are normal with variance 1 / fan-in, so that activations keep their size and experts are chosen evenly; a
peer's own dummy weights would send every token to the same few experts.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from flowserve.model import FloatArray, ModelConfig
from flowserve.model.weights import model_shapes
from flowserve.quant.writer import TensorShape, write_safetensors

SEED = 250
CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "dtype": "float32",
    "vocab_size": 32000,
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "moe_intermediate_size": 256,
    "num_hidden_layers": 5,
    "first_k_dense_replace": 1,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "q_lora_rank": 512,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "head_dim": 64,
    "n_routed_experts": 64,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "n_group": 8,
    "topk_group": 4,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "moe_layer_freq": 1,
    "hidden_act": "silu",
    "attention_bias": False,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "rope_interleave": True,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
}


def make(directory: Path) -> Path:
    """Writes config.json and model.safetensors (1.2 GB) into `directory`."""
    return write_random(directory, CONFIG, SEED)


def write_random(directory: Path, config: dict[str, Any], seed: int, bias: FloatArray | None = None) -> Path:
    """Writes config.json and random weights into `directory`; `bias`, f32[experts], is every router's, else random."""
    (directory / "config.json").write_text(json.dumps(config))
    shapes = dict(model_shapes(ModelConfig.load(directory)))
    described = {name: TensorShape("F32", shape) for name, shape in shapes.items()}
    write_safetensors(directory / "model.safetensors", described, _tensors(shapes, seed, bias))
    return directory


def _tensors(
    shapes: dict[str, tuple[int, ...]], seed: int, bias: FloatArray | None
) -> Iterator[tuple[str, FloatArray]]:
    draw = np.random.default_rng(seed)
    for name, shape in shapes.items():
        if name.endswith("norm.weight"):
            yield name, np.ones(shape, np.float32)
        elif bias is not None and name.endswith("e_score_correction_bias"):
            yield name, bias
        else:
            yield name, draw.standard_normal(shape, dtype=np.float32) / math.sqrt(shape[-1])
