"""What every room may use: errors with exit codes, atomic files, hashing, subprocesses, assets, templates."""
