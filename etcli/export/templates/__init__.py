"""Lowered programs without their weights: chunks of equal graph are lowered once, and the weights of each are put in."""
