"""Which files of a hub repository are the checkpoint: weights in one form only, what describes them, the tokenizer; never code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import CheckpointError, EtcliError
from etcli.common.files import check_relative
from etcli.common.gguf_parts import gguf_parts
from etcli.common.jsonfile import read_object

_BESIDE = frozenset(
    {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "chat_template.jinja",
        "chat_template.json",
    }
)
_DESCRIBING = ("config.json", "generation_config.json")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tekken.json")

# Forms of weights, the best first: safetensors are mapped and hold no program, and a repository that has both holds the model twice.
_FORMS = (
    re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json"),
    re.compile(r"pytorch_model(-\d{5}-of-\d{5})?\.bin|pytorch_model\.bin\.index\.json"),
    re.compile(r"consolidated(\.\d\d)?\.safetensors|params\.json"),
    re.compile(r"consolidated(\.\d\d)?\.pth|params\.json"),
)
_ORIGINAL = "original"
"""Where Meta keeps its own form beside Hugging Face's; in some repositories it is all there is."""

_INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_NAMED = 4


@dataclass(frozen=True)
class Choice:
    """The files to fetch, and what is the checkpoint: one of them (`alone`), or else the folder that they are in."""

    files: tuple[str, ...]
    alone: str | None = None
    folder: str = "."

    @property
    def described(self) -> tuple[str, ...]:
        """Those of the files that describe a network in Hugging Face's form; none in other forms, which cannot be read without the weights."""
        names = {Path(name).name: name for name in self.files}
        if self.alone is not None or "config.json" not in names or "params.json" in names:
            return ()
        return tuple(names[name] for name in _DESCRIBING if name in names)

    def checkpoint(self, snapshot: Path) -> Path:
        """What `model.source` comes to, given the repository's folder."""
        return snapshot / (self.folder if self.alone is None else self.alone)


def choose(source: str, names: Iterable[str]) -> Choice:
    """The checkpoint among the files of a repository; names that lead out of it, which no honest hub lists, are not among them.

    Raises:
        CheckpointError: `hub.files`, there is none, or there are several GGUF models to choose from.
    """
    names = sorted(name for name in names if _is_inside(name))
    for folder in (".", _ORIGINAL):
        inside = {Path(name).name: name for name in names if Path(name).parent == Path(folder)}
        beside = [name for short, name in inside.items() if short in _BESIDE]
        for form in _FORMS:
            weights = [name for short, name in inside.items() if form.fullmatch(short)]
            if any(not name.endswith(".json") for name in weights):
                return Choice((*beside, *weights), folder=folder)
    models = [name for name in names if name.endswith(".gguf") and gguf_parts(Path(name))[0] == Path(name)]
    if len(models) == 1:
        return Choice(tuple(path.as_posix() for path in gguf_parts(Path(models[0]))), models[0])
    if models:
        shown = ", ".join(models[:_NAMED]) + (", ..." if models[_NAMED:] else "")
        raise CheckpointError(
            f"{source} holds {len(models)} GGUF models: {shown}",
            code="hub.files",
            hint=f"Download one and name it as model.source: hf download {source[3:].split('@')[0]} {models[0]}",
        )
    shown = ", ".join(names[:_NAMED]) + (", ..." if names[_NAMED:] else "")
    raise CheckpointError(
        f"{source} holds no weights that etcli reads ({shown or 'it is empty'})",
        code="hub.files",
        hint="Name a repository with model*.safetensors, pytorch_model*.bin, consolidated.*.pth (there or in original/) or a GGUF file.",
    )


def _is_inside(name: str) -> bool:
    try:
        check_relative(name)
    except ValueError:
        return False
    return True


def complete(snapshot: Path) -> Path | None:
    """The checkpoint in a snapshot of the cache, which may hold only what others have asked for; None where something is missing."""
    names = [entry.relative_to(snapshot).as_posix() for entry in snapshot.rglob("*") if entry.is_file()]
    try:
        choice = choose("", names)
    except CheckpointError:
        return None
    checkpoint = choice.checkpoint(snapshot)
    if choice.alone is not None:
        return checkpoint if all((snapshot / name).is_file() for name in choice.files) else None
    described = any((checkpoint / name).is_file() for name in ("config.json", "params.json"))
    tokenizer = any((checkpoint / name).is_file() for name in _TOKENIZERS)
    return checkpoint if described and tokenizer and not _absent_shards(snapshot, checkpoint, choice.files) else None


def _absent_shards(snapshot: Path, checkpoint: Path, weights: Iterable[str]) -> bool:
    if any(Path(name).name.startswith("consolidated.") for name in weights):
        # here, because it imports numpy, for which doctor need not wait
        from etcli.checkpoint import meta

        # only the shapes in the first shard tell how many there are
        return any(problem.code == "checkpoint.shard_missing" for problem in meta.examine(checkpoint)[1])
    wanted: set[str] = set()
    for name in weights:
        match = re.fullmatch(r"(.+)-\d{5}-of-(\d{5})(\.\w+)", name)
        if match:
            total = int(match[2])
            wanted |= {f"{match[1]}-{number:05d}-of-{total:05d}{match[3]}" for number in range(1, min(total, 9999) + 1)}
        elif name in _INDICES:
            try:
                places = read_object(snapshot / name, code="hub.files").get("weight_map")
            except EtcliError:
                return True
            wanted |= {str(file) for file in places.values()} if isinstance(places, dict) else set()
    return any(not (snapshot / name).is_file() for name in wanted)
