"""The network: chunk modules, rope, masks, caches, and reference decoding in eager PyTorch."""
