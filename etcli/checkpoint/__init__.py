"""What the user has: weights read as one ModelConfig and lazily readable tensors under canonical names."""
