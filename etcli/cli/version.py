"""`etcli --version`: what is installed, read from package metadata without importing anything."""

from __future__ import annotations

import platform
from importlib import metadata

import etcli

_PACKAGES = (
    "executorch",
    "torch",
    "torchao",
    "adbutils",
    "cmake",
    "ninja",
    "gguf",
    "safetensors",
    "tokenizers",
    "sentencepiece",
    "tiktoken",
    "pydantic",
    "jinja2",
)


def versions() -> dict[str, str | None]:
    """Version of etcli, Python, the platform and each package that matters; None where one is not installed."""
    found: dict[str, str | None] = {
        "etcli": etcli.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def print_version(*, as_json: bool) -> None:
    """Print `etcli X`, or the JSON document with everything."""
    if as_json:
        from etcli.output.document import document

        print(document("version", exit_code=0, result=versions()))
    else:
        print(f"etcli {etcli.__version__}")
