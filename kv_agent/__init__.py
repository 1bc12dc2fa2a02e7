"""Sends KV caches from one engine's process to another's: torch.distributed, NCCL between GPUs, else Gloo.

An engine embeds an `Agent` with its own `KvStore` and serves the agent's routes on a port of their own. It
needs torch, which the engine has; nothing else of Tokenweir does.
"""
