"""A small MoE whose routers prefer the experts of the first rank: skewed load without skewed prompts.

DeepSeek-V3 chooses experts by affinity plus a bias, and weighs them by affinity alone. A bias that falls from expert to
expert makes the first ones hot; what they compute is as random as all else, so results are sensitive to every mistake.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from xdeepserve_bench.model_checkpoint import CONFIG, write_random

SEED, HOTTEST, FALL = 11, 0.5, 4.0
EXPERTS, TOP_K, LAYERS = 32, 4, 4
MOE_LAYERS = LAYERS - 1
TOKENIZER = Path(__file__).parents[2] / "examples/models/tiny-deepseek-v3"
SMALL: dict[str, Any] = {
    **CONFIG,
    "vocab_size": 320,
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 256,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 64,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "head_dim": 16,
    "n_routed_experts": EXPERTS,
    "num_experts_per_tok": TOP_K,
    "n_group": 1,
    "topk_group": 1,
}


def make(directory: Path) -> Path:
    """Writes a checkpoint (85 MB), with the demo model's tokenizer, into ``directory``."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, directory)
    bias = (HOTTEST * np.exp(-np.arange(EXPERTS) / FALL)).astype(np.float32)
    return write_random(directory, SMALL, SEED, bias)
