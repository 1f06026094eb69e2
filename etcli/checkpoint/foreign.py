"""What a path is that is no checkpoint of a known format, told by its content so that the user knows what to do."""

from __future__ import annotations

from pathlib import Path

from etcli.common.errors import CheckpointError, Problem

LFS = b"version https://git-lfs"
LFS_HINT = "Fetch the real file: git lfs pull (in the clone), or download it again from its publisher."
_SUPPORTED = "Supported are GGUF files, Hugging Face folders, Meta's folders, and single PyTorch or safetensors files beside their configuration."


def unknown_format(path: Path) -> Problem:
    """The problem of `path` being no checkpoint that can be read."""
    if not path.exists():
        return _problem(path, "there is no checkpoint here", "missing", "Check model.source in the recipe.")
    if not (path.is_dir() or path.is_file()):
        return _problem(
            path, f"{path.name} is neither a file nor a folder", "unknown", "Save the checkpoint as a file."
        )
    what, code, hint = _folder(path) if path.is_dir() else _file(path)
    name = path.name or path.resolve().name or str(path.resolve())  # `.` has no name of its own
    return _problem(path, f"{name} is {what}", code, hint)


def lfs_pointer(path: Path) -> Problem | None:
    """The problem of `path` being a Git LFS pointer instead of the file it stands for, if it is one."""
    with path.open("rb") as file:
        if file.read(len(LFS)) != LFS:
            return None
    return _problem(path, f"{path.name} is a Git LFS pointer, not the file itself", "lfs_pointer", LFS_HINT)


def _problem(path: Path, message: str, code: str, hint: str) -> Problem:
    return CheckpointError.problem(message, code=f"checkpoint.{code}", hint=hint, file=path)


def _file(path: Path) -> tuple[str, str, str]:
    with path.open("rb") as file:
        start = file.read(64)
    if start.startswith(LFS):
        return "a Git LFS pointer, not the file itself", "lfs_pointer", LFS_HINT
    if not start:
        return "empty", "truncated", "Fetch the file again."
    if start[:4] in (b"ggml", b"lmgg", b"tjgg", b"GGML"):
        return "of a format older than GGUF", "unsupported", "Use a GGUF file of the same model."
    if start.lstrip()[:1] in (b"<", b"{"):
        return "text, not a model", "unknown", "The download may have saved an error page; fetch it again."
    return "of no known format", "unknown", _SUPPORTED


def _folder(path: Path) -> tuple[str, str, str]:
    entries = sorted(path.iterdir())
    dangling = [entry.name for entry in entries if entry.is_symlink() and not entry.exists()]
    names = [entry.name for entry in entries if entry.is_file() or entry.is_dir()]
    guess = [name for name in names if name.endswith(".gguf")]
    if guess:
        return "a folder of GGUF files", "unsupported", f"Name one file, such as {path / guess[0]}"
    if "params.json" in names:
        return (
            "a folder with params.json but without consolidated.*.pth",
            "missing",
            "Fetch the weights into the folder.",
        )
    if any(name.endswith(".distcp") for name in names):
        hint = f"Make one file of it: python -m torch.distributed.checkpoint.format_utils dcp_to_torch {path} model.pth"
        return "a distributed checkpoint (torch.distributed.checkpoint)", "unsupported", hint
    if "adapter_config.json" in names:
        return (
            "a LoRA adapter without its base model",
            "unsupported",
            "Name the base model as model.source, and this folder as model.adapter.",
        )
    if any(name == "config.json" or name.startswith("model") for name in dangling):
        hint = "What they point to was moved or deleted (caches keep such files elsewhere). Fetch the folder again, or copy it with: cp -rL"
        return f"a folder whose links lead nowhere: {', '.join(dangling[:4])}", "missing", hint
    weights = [name for name in names if name.endswith((".safetensors", ".bin", ".pth", ".pt"))]
    if weights and "config.json" not in names:
        hint = "Fetch the config.json that belongs to the weights into the folder."
        return f"a folder of weights ({weights[0]}) without config.json", "missing", hint
    if len(weights) > 1:
        hint = f"Name the one that you mean: {path / weights[0]}"
        return f"a folder of several files of weights: {', '.join(weights[:4])}", "ambiguous", hint
    inner = [name for name in names if (path / name / "config.json").is_file()]
    if inner:
        return "not a checkpoint folder itself", "unsupported", f"Did you mean {path / inner[0]}?"
    lost = [name for name in ("config.json", "model.safetensors") if not (path / name).is_file()]
    return (
        f"a folder without {' and '.join(lost)}",
        "missing" if len(lost) == 1 else "unknown",
        _SUPPORTED,
    )
