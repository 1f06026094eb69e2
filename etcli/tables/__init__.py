"""The YAML facts under toolchains/ as typed objects."""
