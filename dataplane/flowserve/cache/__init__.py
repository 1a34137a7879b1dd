"""The paged latent KV cache: a pool of blocks, and sequences that hold some of them."""

from flowserve.cache.int8_pool import Int8BlockPool
from flowserve.cache.pool import BlockPool, OutOfBlocks
from flowserve.cache.prefix import PrefixCache
from flowserve.cache.sequence import SequenceKV

__all__ = ["BlockPool", "Int8BlockPool", "OutOfBlocks", "PrefixCache", "SequenceKV"]
