"""DeepSeek-V3 in NumPy: checkpoints, the forward pass over a paged latent cache, routed experts and sampling."""

from flowserve.model.arrays import FloatArray, IntArray
from flowserve.model.config import ModelConfig
from flowserve.model.errors import CheckpointError, UnsupportedModel
from flowserve.model.experts import Experts, ExpertWeights, LocalExperts, combine, run_experts
from flowserve.model.model import Model
from flowserve.model.mtp import MtpLayer
from flowserve.model.sampling import LogProbabilities, SamplingParams, log_probabilities, sample
from flowserve.model.weights import Weights
from xccl import Steps

__all__ = [
    "CheckpointError",
    "ExpertWeights",
    "Experts",
    "FloatArray",
    "IntArray",
    "LocalExperts",
    "LogProbabilities",
    "Model",
    "ModelConfig",
    "MtpLayer",
    "SamplingParams",
    "Steps",
    "UnsupportedModel",
    "Weights",
    "combine",
    "log_probabilities",
    "run_experts",
    "sample",
]
