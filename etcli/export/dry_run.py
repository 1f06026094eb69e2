"""`etcli export --dry-run`: what an export would do."""

from __future__ import annotations

from etcli.checkpoint.source import peek
from etcli.common.workspace import Workspace
from etcli.export.currency import current_bundle
from etcli.export.inputs import piece_keys, remade_pieces, tensor_hashes
from etcli.export.planned import planned, planned_from_source
from etcli.export.preview import planned_work
from etcli.export.result import ExportOptions, ExportResult
from etcli.export.source import peek_checkpoint, quantising_needs
from etcli.export.store import Store
from etcli.export.templates.cache import TemplateCache
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe


def dry_run(loaded: LoadedRecipe, workspace: Workspace, options: ExportOptions, console: Console) -> ExportResult:
    """What an export with these options would make, reuse or find current; nothing is written.

    Raises:
        CheckpointError: the source, its headers or its tokenizer are wrong.
    """
    source = peek(loaded)
    if source is None:
        console.warn(
            f"{loaded.recipe.model.source} is not on this machine yet: export fetches it first, and then knows what is to be done",
            code="export.not_fetched",
        )
        return ExportResult(None, workspace.bundle, dry_run=True)
    found = None if options.force else current_bundle(loaded, source, workspace.bundle, verified=options.verify)
    path = peek_checkpoint(loaded, console)
    if path is None:
        model, plan = planned_from_source(loaded, source)
        needs = None if found is not None else quantising_needs(model)
    else:
        checkpoint, _, model, plan = planned(loaded, path)
        needs = None
    store = Store(workspace.export_work)
    everything = remade_pieces(plan, None)
    remade = remade_pieces(plan, options.only_chunks) if options.force else set[str]()
    if found is not None:
        there = everything
    elif path is not None and store.has_any() and remade != everything:
        # tensors are read only where a finished piece may be made from them
        tensors = tensor_hashes(checkpoint, console)
        keys = piece_keys(plan, model, tensors, store, verify=options.verify, remade=remade)
        there = {place for place, key in keys.items() if place not in remade and store.is_whole(key)}
    else:
        there = set()
    return ExportResult(
        None if found is None else found[0],
        workspace.bundle,
        current=found is not None,
        dry_run=True,
        plan=plan,
        work=planned_work(plan, model, there, TemplateCache(), options),
        quantising=needs,
    )
