"""From a Llama checkpoint to tokens on an Android phone, from one YAML recipe."""

__version__ = "0.1.0"
