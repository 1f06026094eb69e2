"""Custom operators as Python sees them: schemas, fake kernels, eager kernels, and the loading of compiled libraries."""
