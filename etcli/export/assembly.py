"""Finished pieces put together as a bundle folder, which replaces the old one as a whole."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from etcli.common.errors import CheckpointError
from etcli.common.files import remove_tree, remove_unfinished, write_atomically
from etcli.common.hashing import file_sha256
from etcli.common.workspace import Workspace
from etcli.export.inputs import tool_versions
from etcli.export.job import Outcome
from etcli.export.plan import ExportPlan
from etcli.export.runner_config import runner_config
from etcli.export.store import link_or_copy
from etcli.manifests.base import FileEntry
from etcli.manifests.bundle import (
    BundleManifest,
    Chunk,
    ChunkFile,
    Embedding,
    RopeTable,
    TokenizerFiles,
    Versions,
)
from etcli.manifests.model import ModelConfig
from etcli.manifests.quantised import Quality
from etcli.recipe.fingerprint import cache_kind, export_fingerprint
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.outdated import MANIFEST
from etcli.tables.socs import find_soc
from etcli.tokenizer.base import Tokenizer

RUNNER_CONFIG = "runner.cfg"
_TOKENIZER = "tokenizer"


def united_config(config: ModelConfig, tokenizer: Tokenizer) -> ModelConfig:
    """The network's numbers with the stop ids of checkpoint and tokenizer together, in rising order.

    Raises:
        CheckpointError: `tokenizer.vocabulary`, the tokenizer has ids that the embedding has no row for, or `tokenizer.stop_ids`.
    """
    if tokenizer.vocab_size > config.vocab_size:
        raise CheckpointError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, the network's embedding only {config.vocab_size} rows",
            code="tokenizer.vocabulary",
            hint="The tokenizer belongs to another model, or tokens were added without resizing the embedding.",
        )
    stops = sorted({*config.stop_ids, *tokenizer.stop_ids})
    outside = [stop for stop in stops if not 0 <= stop < config.vocab_size]
    if outside:
        raise CheckpointError(
            f"stop ids {outside} are outside the vocabulary of {config.vocab_size}",
            code="tokenizer.stop_ids",
            hint="Correct eos_token_id in config.json or generation_config.json.",
        )
    return config.model_copy(update={"stop_ids": tuple(stops)})


def stop_sources(config: ModelConfig, tokenizer: Tokenizer) -> dict[int, tuple[str, ...]]:
    """For each stop id of a united `config`, what names it: files of the checkpoint, tokens of well-known names."""
    return {stop: tokenizer.stop_sources.get(stop, ("the checkpoint",)) for stop in config.stop_ids}


class Assembly:
    """A bundle folder in the making, below the workspace's export folder."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        workspace.export_work.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="bundle-new-", dir=workspace.export_work))
        self.folder.chmod(0o755)

    def place(self, piece: Path, name: str, path: str) -> None:
        """Put the file `name` of a piece at `path` of the bundle."""
        link_or_copy(piece / name, self.folder / path)

    def tokenizer(self, tokenizer: Tokenizer) -> TokenizerFiles:
        """Write the tokenizer's files."""
        folder = self.folder / _TOKENIZER
        folder.mkdir()
        saved = tokenizer.save(folder)
        return TokenizerFiles(
            **self._entry(saved.file).model_dump(),
            kind=tokenizer.kind,
            chat_template=None if saved.chat_template is None else self._entry(saved.chat_template),
            settings=None if saved.settings is None else self._entry(saved.settings),
            bos_id=tokenizer.bos_id,
        )

    def manifest(
        self,
        loaded: LoadedRecipe,
        plan: ExportPlan,
        model: ModelConfig,
        tokenizer: TokenizerFiles,
        programs: Mapping[str, Outcome],
        tables: tuple[FileEntry, FileEntry],
        reference: tuple[FileEntry, ...],
        inputs_sha256: str,
        quality: Quality | None,
    ) -> BundleManifest:
        """Write `runner.cfg`, then, last, `manifest.json`.

        `programs` are by place in the bundle, `tables` are embedding and rope table, `reference` the chunks' quantised graphs.
        """
        embedding, rope = tables
        identifiers = {outcome.program for outcome in programs.values()}
        neuron = loaded.recipe.neuron
        soc = find_soc(neuron.platform) if neuron is not None else None
        draft = BundleManifest(
            name=plan.name,
            recipe_sha256=export_fingerprint(loaded.recipe),
            inputs_sha256=inputs_sha256,
            versions=Versions(**tool_versions(), program=str(identifiers.pop())),
            model=model,
            backend=plan.backend,
            precision=plan.precision.precision,
            group_size=plan.precision.group_size,
            head=plan.precision.head,
            layout=loaded.recipe.export.layout,
            shapes=plan.shapes,
            cache=cache_kind(loaded.recipe),
            chunks=tuple(
                Chunk(
                    index=chunk.index,
                    first_layer=chunk.first_layer,
                    layers=chunk.layers,
                    files=tuple(_chunk_file(program.file, programs[program.file]) for program in chunk.programs),
                )
                for chunk in plan.chunks
            ),
            embedding=Embedding(
                **embedding.model_dump(),
                **plan.embedding.model_dump(),
                rows=model.vocab_size,
                cols=model.hidden_size,
            ),
            rope=RopeTable(**rope.model_dump(), positions=plan.positions),
            tokenizer=tokenizer,
            runner_config=FileEntry(path=RUNNER_CONFIG, size=0, sha256="0" * 64),
            reference=reference,
            platform=soc.id if soc is not None else None,
            simulated=neuron is not None and neuron.simulated,
            quality=quality,
            verified=all(outcome.errors for outcome in programs.values()),
        )
        path = self.folder / RUNNER_CONFIG
        write_atomically(path, runner_config(draft))
        manifest = draft.model_copy(update={"runner_config": self._entry(path)})
        manifest.write(self.folder / MANIFEST)
        return manifest

    def replace(self) -> None:
        """Put the folder in the place of the old bundle: two renames, so that a bundle is old, new, or for an instant absent, never mixed."""
        old, target = Path(f"{self.folder}-old"), self._workspace.bundle
        if target.is_symlink() or target.exists():
            target.rename(old)
        self.folder.rename(target)
        remove_tree(old)

    def discard(self) -> None:
        """Remove the folder, if it was not put in place."""
        remove_tree(self.folder)

    def _entry(self, path: Path) -> FileEntry:
        return FileEntry(
            path=path.relative_to(self.folder).as_posix(), size=path.stat().st_size, sha256=file_sha256(path)
        )


def remove_leftovers(workspace: Workspace) -> None:
    """Remove bundle folders that an export killed half-way left, and bring back an old bundle that it had just moved away."""
    for folder in sorted(workspace.export_work.glob("bundle-new-*")):
        if folder.name.endswith("-old") and not workspace.bundle.exists():
            folder.rename(workspace.bundle)
        else:
            remove_tree(folder)
    remove_unfinished(workspace.home, ["bundle.recipe.yaml"])


def _chunk_file(path: str, outcome: Outcome) -> ChunkFile:
    file = outcome.files[0]
    return ChunkFile(path=path, size=file.size, sha256=file.sha256, methods=outcome.methods)
