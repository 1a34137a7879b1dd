"""The sizes of a model to train, and the config.json that describes them to everybody else."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from flowserve.model.rope import Rope, Yarn

BOS, EOS, PAD = "<bos>", "<eos>", "<pad>"
SPECIAL = (BOS, EOS, PAD)  # tokens 0, 1 and 2

# With eight rotary pairs only, more of them have to stay as they are than DeepSeek's beta_fast = 32 leaves.
STRETCH = Yarn(
    factor=16.0, original_max_position_embeddings=128, beta_fast=4.0, beta_slow=0.5, mscale=0.707, mscale_all_dim=0.707
)


@dataclass(frozen=True)
class Shape:
    """Sizes in elements; names as in config.json, but for `yarn`."""

    vocab_size: int = 2048
    hidden_size: int = 160
    intermediate_size: int = 448
    moe_intermediate_size: int = 32
    num_hidden_layers: int = 4
    first_k_dense_replace: int = 1
    num_attention_heads: int = 5
    q_lora_rank: int = 80
    kv_lora_rank: int = 48
    qk_nope_head_dim: int = 32
    qk_rope_head_dim: int = 16
    v_head_dim: int = 32
    n_routed_experts: int = 32
    n_shared_experts: int = 2
    num_experts_per_tok: int = 4
    n_group: int = 4
    topk_group: int = 2
    routed_scaling_factor: float = 2.5
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10_000.0
    yarn: Yarn | None = None

    @property
    def max_position_embeddings(self) -> int:
        stretch = self.yarn or STRETCH
        return round(stretch.original_max_position_embeddings * stretch.factor)

    @property
    def rope(self) -> Rope:
        return Rope(self.qk_rope_head_dim, self.rope_theta, self.yarn)

    @property
    def layers(self) -> range:
        """The main model's layers, then the MTP layer."""
        return range(self.num_hidden_layers + 1)

    @property
    def moe_layers(self) -> range:
        """The layers with routed experts, that of MTP included."""
        return range(self.first_k_dense_replace, self.num_hidden_layers + 1)

    def config(self) -> dict[str, Any]:
        """config.json as an object, in the spelling of DeepSeek's own files."""
        sizes = asdict(self)
        scaling = sizes.pop("yarn")
        fixed = {
            "architectures": ["DeepseekV3ForCausalLM"],
            "model_type": "deepseek_v3",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": SPECIAL.index(BOS),
            "dtype": "bfloat16",
            "eos_token_id": SPECIAL.index(EOS),
            "hidden_act": "silu",
            "initializer_range": 0.02,
            "max_position_embeddings": self.max_position_embeddings,
            "moe_layer_freq": 1,
            "norm_topk_prob": True,
            "num_key_value_heads": self.num_attention_heads,
            "num_nextn_predict_layers": 1,
            "pad_token_id": SPECIAL.index(PAD),
            "rope_interleave": True,
            "rope_scaling": scaling and {"type": "yarn", **scaling},
            "scoring_func": "sigmoid",
            "tie_word_embeddings": False,
            "topk_method": "noaux_tc",
            "use_cache": True,
        }
        return dict(sorted((sizes | fixed).items()))
