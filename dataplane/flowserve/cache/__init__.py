"""The paged latent KV cache: a pool of blocks, and sequences that hold some of them."""

from flowserve.cache.pool import BlockPool, OutOfBlocks
from flowserve.cache.sequence import SequenceKV

__all__ = ["BlockPool", "OutOfBlocks", "SequenceKV"]
