"""Runner kinds, one module each, chosen from a registry."""
