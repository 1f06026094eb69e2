"""Checkpoint and recipe to a bundle: the plan, one worker process per chunk, one module per backend."""
