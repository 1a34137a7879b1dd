"""Recordings of expert load: files of SGLang and Megatron, our own, and made-up ones."""
