"""What an export is expected to need: never less than it takes, and told before any work."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file
from small_export import Exported, load_document, small_document

from etcli.checkpoint.layout import EMBEDDING, NORM, layer_shapes
from etcli.cli.main import cli
from etcli.common.errors import InterruptedByUser
from etcli.common.workspace import Workspace
from etcli.export.estimates import GRAPH_FILE_BYTES, disk_bytes, lowering_bytes, making_bytes
from etcli.export.inputs import TABLES
from etcli.export.job import ChunkWork, LowerWork, TablesWork
from etcli.export.plan import make_plan
from etcli.export.pool import Pool, Task
from etcli.export.preview import planned_work
from etcli.export.result import ExportOptions
from etcli.export.templates.cache import TemplateCache
from etcli.manifests.export_report import ExportReport
from etcli.manifests.model import ModelConfig, RopeConfig

BILLION = ModelConfig(
    architecture="llama",
    hidden_size=2048,
    intermediate_size=8192,
    num_layers=16,
    num_heads=32,
    num_kv_heads=8,
    head_dim=64,
    vocab_size=128256,
    context_length=131072,
    rms_norm_eps=1e-5,
    rope=RopeConfig(theta=5e5),
    tied_embeddings=True,
)
"""Llama 3.2 1B."""


def test_workers_held_no_more_than_was_estimated(exported: Exported) -> None:
    report = ExportReport.read(exported.bundle / "export-report.json")
    model = exported.manifest.model
    plan = make_plan(load_document(exported.document), model)
    for chunk in plan.chunks:
        (program,) = chunk.programs
        (made,) = (entry for entry in report.chunks if entry.index == chunk.index)
        assert made.peak_memory_bytes <= making_bytes(plan, chunk, program, model)
        for lowering in report.lowerings:
            assert lowering.peak_memory_bytes <= lowering_bytes(plan, chunk, program, model)


def test_estimates_grow_with_what_is_held() -> None:
    document = {"name": "a", "model": {"source": "x"}, "export": {"chunks": 4, "shapes": ["32t512c", "1t512c"]}}
    plan = make_plan(load_document(document), BILLION)
    body, head = plan.chunks[0], plan.chunks[-1]
    for estimate in (lowering_bytes, making_bytes):
        small, large = (estimate(plan, chunk, chunk.programs[0], BILLION) for chunk in (body, head))
        assert body.weights_bytes < small < 4 * body.weights_bytes
        assert large - small > head.weights_bytes - body.weights_bytes
        longer = make_plan(
            load_document({**document, "export": {"chunks": 4, "shapes": ["512t4096c", "1t4096c"]}}), BILLION
        )
        chunk = longer.chunks[-1]
        # the scores of 32 heads for 512 rows over 4608 columns, and logits of 512 rows
        more = estimate(longer, chunk, chunk.programs[0], BILLION) - large
        assert more > 4 * (32 * 512 * 4608 + 512 * 128256)


def test_the_plan_tells_what_is_there_and_what_would_be_lowered(tmp_path: Path) -> None:
    document = {"name": "a", "model": {"source": "x"}, "export": {"chunks": 4, "shapes": ["32t512c", "1t512c"]}}
    plan = make_plan(load_document(document), BILLION)
    files = [program.file for program in plan.programs]
    cache = TemplateCache(tmp_path)
    work = planned_work(plan, BILLION, {files[0]}, cache, ExportOptions(jobs=2))
    assert [program.state for program in work.programs] == ["there", "lowered", "template", "lowered"]
    assert [program.memory_bytes > 0 for program in work.programs] == [False, True, True, True]
    assert work.programs[1].layers == (4, 7)
    assert work.jobs == 2
    assert not work.tables_there
    # each of the two that are lowered is on the disk three times meanwhile
    assert work.disk_bytes == disk_bytes(plan, {*files[1:], TABLES}, {files[1], files[3]})
    weights = [chunk.weights_bytes for chunk in plan.chunks]
    assert work.disk_bytes > 3 * weights[1] + weights[2] + 3 * weights[3] + plan.embedding_bytes
    one = planned_work(plan, BILLION, {TABLES}, cache, ExportOptions(only_chunks=(2,)))
    assert [program.state for program in one.programs] == ["not asked for", "not asked for", "lowered", "not asked for"]


def test_dry_run_prints_the_plan(exported: Exported, tmp_path: Path) -> None:
    recipe = tmp_path / "small.yaml"
    recipe.write_text(json.dumps(exported.document))
    arguments = ["export", str(recipe), "--dry-run", "--workspace", str(exported.workspace.root)]
    ran = CliRunner().invoke(cli, [*arguments, "--json"])
    assert ran.exit_code == 0, ran.stderr
    work: dict[str, Any] = json.loads(ran.stdout)["result"]["work"]
    assert [program["state"] for program in work["programs"]] == ["there", "there"]
    assert work["tables_there"]
    ran = CliRunner().invoke(cli, [*arguments, "--set", "export.shapes=[4t32c, 1t32c]"])
    assert ran.exit_code == 0, ran.stderr
    assert "chunks/small_1.pte" in ran.stdout
    assert "4t32c 1t32c" in ran.stdout
    assert "memory together" in ran.stdout.replace("\n", " ")


def test_a_dry_run_of_what_is_not_here_yet_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "cache"))
    ran = CliRunner().invoke(cli, ["export", "--dry-run", "--json", "--workspace", str(tmp_path / "work")])
    assert ran.exit_code == 0, ran.stderr
    assert [warning["code"] for warning in json.loads(ran.stdout)["warnings"]] == ["export.not_fetched"]
    assert not list(tmp_path.iterdir())


def test_a_dry_run_of_a_current_bundle_plans_nothing(exported: Exported) -> None:
    result = exported.again(dry_run=True)
    assert result.current
    assert result.work is not None
    assert {program.state for program in result.work.programs} == {"there"}
    assert (result.work.jobs, result.work.memory_bytes, result.work.disk_bytes) == (0, 0, 0)


@pytest.mark.parametrize("layout", ["package", "separate"])
@pytest.mark.parametrize("force", [False, True])
def test_the_plan_is_what_the_export_then_does(
    copied: Exported, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, layout: str, force: bool
) -> None:
    """As many workers, with as much memory, for the same programs, whether templates are there or not."""
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "cache"))
    shapes = copied.document["export"]["shapes"] if force else ["4t32c", "1t32c"]
    document = {**copied.document, "export": {**copied.document["export"], "layout": layout, "shapes": shapes}}
    changed = Exported(document, copied.workspace, copied.checkpoint)
    options = {"force": force, "only_chunks": (1,) if force else None}
    given: list[list[Task]] = []
    monkeypatch.setattr(Pool, "run", lambda _self, tasks: given.append(list(tasks)) or _stop())
    work = changed.again(dry_run=True, **options).work
    assert work is not None
    with pytest.raises(InterruptedByUser):
        changed.again(**options)
    (tasks,) = given
    made = [task for task in tasks if isinstance(task.work, ChunkWork)]
    planned = [program for program in work.programs if program.state in ("lowered", "template")]
    assert sorted(method.name for task in made for method in task.work.methods) == sorted(
        name for program in planned for name in program.methods
    )
    assert sorted(task.memory_bytes for task in made) == sorted(program.memory_bytes for program in planned)
    assert sum(isinstance(task.work, LowerWork) for task in tasks) == sum(
        program.state == "lowered" for program in planned
    )
    assert work.tables_there != any(isinstance(task.work, TablesWork) for task in tasks)
    assert work.memory_bytes == sum(sorted((task.memory_bytes for task in tasks), reverse=True)[: work.jobs])


def test_the_plan_does_not_count_on_a_damaged_piece(copied: Exported) -> None:
    (copied.bundle / "manifest.json").unlink()
    pieces = list(copied.workspace.export_work.glob("pieces/*/chunk.pte"))
    pieces[0].write_bytes(b"damaged")
    work = copied.again(dry_run=True).work
    assert work is not None
    assert sorted(program.state for program in work.programs) == ["template", "there"]
    assert pieces[0].exists()


@pytest.mark.parametrize("precision", ["fp32", "fp16", "8da4w"])
def test_files_are_about_as_large_as_planned(small_checkpoint: Path, tmp_path: Path, precision: str) -> None:
    document = small_document(small_checkpoint, precision=precision, embedding="int8", chunks=1)
    exported = Exported(document, Workspace(tmp_path, "small"), small_checkpoint)
    planned = exported.again(dry_run=True).work
    assert planned is not None
    exported.again(verify=False)
    (chunk,) = exported.manifest.chunks
    weights = planned.programs[0].bytes - GRAPH_FILE_BYTES * 4
    assert weights < chunk.files[0].size <= planned.programs[0].bytes
    assert planned.tables_bytes == exported.manifest.embedding.size + exported.manifest.rope.size


def _stop() -> None:
    raise KeyboardInterrupt


@pytest.mark.full
@pytest.mark.timeout(3000)
def test_a_model_of_a_billion_parameters_stays_within_its_estimate(tmp_path: Path) -> None:
    if psutil.virtual_memory().available < 10e9 or shutil.disk_usage(tmp_path).free < 25e9:
        pytest.skip("it needs 10 GB of memory and 25 GB on the disk")
    checkpoint = tmp_path / "model"
    _write_checkpoint(checkpoint, BILLION)
    document = small_document(checkpoint, chunks=4, shapes=["32t512c", "1t512c"], cache="ring")
    exported = Exported(document, Workspace(tmp_path / "workspace", "small"), checkpoint)
    result = exported.again()
    plan = make_plan(load_document(document), exported.manifest.model)
    for report in result.chunks:
        chunk = plan.chunks[report.index]
        bound = max(
            estimate(plan, chunk, chunk.programs[0], exported.manifest.model)
            for estimate in (making_bytes, lowering_bytes)
        )
        assert report.peak_memory_bytes <= bound
        assert report.errors
    largest = max(lowering_bytes(plan, chunk, chunk.programs[0], exported.manifest.model) for chunk in plan.chunks)
    assert all(lowering.peak_memory_bytes <= largest for lowering in result.lowerings)


def _write_checkpoint(folder: Path, config: ModelConfig) -> None:
    """Random weights in bfloat16, a shard a layer, and a tokenizer of words."""
    import tokenizers

    folder.mkdir()
    generator = torch.Generator().manual_seed(0)
    places = {}
    shards = [
        {f"model.layers.{layer}.{name}": shape for name, shape in layer_shapes(config, layer).items()}
        for layer in range(config.num_layers)
    ]
    shards.append({EMBEDDING: (config.vocab_size, config.hidden_size), NORM: (config.hidden_size,)})
    for number, shapes in enumerate(shards):
        name = f"model-{number:05}.safetensors"
        tensors = {key: (torch.randn(shape, generator=generator) * 0.02).bfloat16() for key, shape in shapes.items()}
        save_file(tensors, folder / name)
        places.update(dict.fromkeys(shapes, name))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    numbers = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context_length,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope.theta,
        "tie_word_embeddings": True,
        "eos_token_id": 1,
    }
    (folder / "config.json").write_text(json.dumps(numbers))
    words = {f"w{index}": index for index in range(512)}
    model = tokenizers.models.WordLevel(words, unk_token="w0")  # noqa: S106 - no password
    tokenizers.Tokenizer(model).save(str(folder / "tokenizer.json"))
