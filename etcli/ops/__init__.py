"""Custom operators as Python sees them: schemas, fake kernels, eager kernels, loading of compiled libraries."""
