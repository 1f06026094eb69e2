"""Recipe and target to binaries: what to render and compile, and the audit of what came out."""
