"""What a network is lowered to: one module a backend, behind the interface in `base.py`, chosen from `registry.py`."""
