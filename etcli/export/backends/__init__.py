"""Export backends, one module each, chosen from a registry."""
