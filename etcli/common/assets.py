"""The folders that travel with the product: `templates`, `toolchains`, `recipes` and `native`.

In a checkout they stand at its top; an installed wheel carries them inside the package.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDERS = ("templates", "toolchains", "recipes", "native")


def asset_dir(name: str) -> Path:
    """Absolute path of one of the asset folders.

    Raises:
        ValueError: `name` is not an asset folder.
        FileNotFoundError: the installation lacks it.
    """
    if name not in _FOLDERS:
        raise ValueError(f"{name!r} is not one of {', '.join(_FOLDERS)}")
    for root in (_PACKAGE / "_assets", _PACKAGE.parent):
        if (root / name).is_dir():
            return root / name
    raise FileNotFoundError(f"this installation of etcli lacks its {name} folder; reinstall it")
