"""`--evaluate`: the figures against transformers-like arithmetic done here, the text, and what an export reports."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from small_export import Exported, export_here, small_document

from etcli.cli.main import cli
from etcli.common.errors import UsageError
from etcli.export.evaluation import MAX_TOKENS, evaluation_ids, evaluation_text
from etcli.export.quality import quality, relative_error
from etcli.manifests.export_report import ExportReport


def test_figures_are_those_of_the_definitions() -> None:
    generator = torch.Generator().manual_seed(0)
    right = torch.randn(130, 40, generator=generator) * 2
    other = right + torch.randn(130, 40, generator=generator) * 0.3
    following = torch.randint(0, 40, (130,), generator=generator)
    found = quality(right, other, following)
    losses, divergence, agree = np.zeros(2), 0.0, 0
    for row in range(130):
        chances = []
        for index, logits in enumerate((right, other)):
            powers = np.exp(logits[row].double().numpy())
            chances.append(powers / powers.sum())
            losses[index] -= math.log(chances[-1][following[row]])
        divergence += sum(p * math.log(p / q) for p, q in zip(*chances, strict=True))
        agree += int(np.argmax(chances[0]) == np.argmax(chances[1]))
    assert found.positions == 130
    assert found.perplexity_float == pytest.approx(math.exp(losses[0] / 130))
    assert found.perplexity == pytest.approx(math.exp(losses[1] / 130))
    assert found.mean_kl == pytest.approx(divergence / 130)
    assert found.top1_agreement == pytest.approx(agree / 130)
    assert 0 < agree < 130


def test_equal_networks_agree() -> None:
    logits = torch.randn(10, 8)
    found = quality(logits, logits.clone(), torch.zeros(10, dtype=torch.int64))
    assert (found.mean_kl, found.top1_agreement) == (0.0, 1.0)
    assert found.perplexity == found.perplexity_float


def test_broken_networks_give_numbers_too() -> None:
    """What is written as JSON must be read again: no infinity, no NaN."""
    logits = torch.zeros(2, 3)
    logits[:, 1] = 1e5
    found = quality(torch.zeros(2, 3), logits, torch.zeros(2, dtype=torch.int64))
    assert math.isfinite(found.perplexity)
    nothing, something = torch.zeros(4), torch.ones(4)
    assert relative_error(nothing, nothing) == 0
    assert math.isfinite(relative_error(something, nothing))
    assert relative_error(2 * something, something) == pytest.approx(1)


class _Letters:
    """A tokenizer of one id a letter."""

    def encode(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        return [1] * bos + [ord(letter) for letter in text]


def test_the_built_in_text_is_long_enough_and_files_are_bounded(tmp_path: Path) -> None:
    assert 300 < len(evaluation_text(None).split()) < 600
    file = tmp_path / "long.txt"
    file.write_text("\u00e4" * (1 << 20), encoding="utf-8")  # the limit falls into a character
    text = evaluation_text(file)
    assert set(text) == {"\u00e4"}
    ids = evaluation_ids(_Letters(), text)  # type: ignore[arg-type]
    assert len(ids) == MAX_TOKENS
    assert ids[0] == 1


@pytest.mark.parametrize(
    ("content", "said"), [(None, "No such file"), (b"\xff\xfe\x00", "not UTF-8"), (b"  a short text  ", "at least 32")]
)
def test_a_text_that_cannot_be_used_is_a_matter_of_usage(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "text.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=said) as caught:
        evaluation_ids(_Letters(), evaluation_text(file), file)  # type: ignore[arg-type]
    (problem,) = caught.value.problems
    assert (problem.code, problem.file) == ("export.evaluation_text", file)
    assert problem.hint


@pytest.fixture(scope="module")
def lossy(small_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Path]:
    """A recipe in precisions that lose something and lower quickly, exported and evaluated through the command line."""
    root = tmp_path_factory.mktemp("lossy")
    document = small_document(
        small_checkpoint,
        backend="portable",
        precision="fp16",
        head="fp16",
        embedding="int4",
        shapes=["4t16c", "1t16c"],
        cache="shift",
    )
    (root / "recipe.yaml").write_text(json.dumps(document))
    arguments = [
        "export",
        str(root / "recipe.yaml"),
        "--workspace",
        str(root / "ws"),
        "--jobs",
        "1",
        "--evaluate",
        "--json",
    ]
    ran = CliRunner().invoke(cli, arguments)
    assert ran.exit_code == 0, ran.stderr
    return json.loads(ran.stdout)["result"], root / "ws" / "small" / "bundle"


def test_an_export_reports_what_it_lost(lossy: tuple[dict, Path]) -> None:
    result, bundle = lossy
    report = ExportReport.read(bundle / "export-report.json")
    found = report.evaluation
    assert found is not None
    assert result["evaluation"] == found.model_dump(mode="json")
    assert found.positions > 100
    assert 0 < found.mean_kl < 0.1
    assert 0.5 < found.top1_agreement <= 1
    assert found.perplexity == pytest.approx(found.perplexity_float, rel=0.1)
    assert len(found.chunk_errors) == 2
    assert all(0 < error < 2e-3 for error in found.chunk_errors)
    for chunk in report.chunks:
        assert set(chunk.float_errors) == {f"small_{shape}_{chunk.index}" for shape in ("4t16c", "1t16c")}
        assert all(0 < error < 2e-3 for error in chunk.float_errors.values())
        assert chunk.max_abs_error is not None


def test_the_bundle_names_its_precisions(lossy: tuple[dict, Path]) -> None:
    manifest = json.loads((lossy[1] / "manifest.json").read_text())
    assert (manifest["precision"], manifest["head"], manifest["group_size"]) == ("fp16", "fp16", None)
    embedding = manifest["embedding"]
    assert (embedding["dtype"], embedding["group_size"], embedding["path"]) == ("int4", 32, "embedding_int4.bin")
    # two scales and 64 half bytes a row
    assert embedding["size"] == embedding["rows"] * (2 * 4 + 32)
    config = (lossy[1] / "runner.cfg").read_text().splitlines()
    assert {"embedding.dtype=int4", "embedding.group_size=32"} <= set(config)


def test_float32_loses_nothing_and_says_nothing(exported: Exported) -> None:
    report = ExportReport.read(exported.bundle / "export-report.json")
    assert all(chunk.float_errors == {} for chunk in report.chunks)
    assert report.evaluation is None


def test_a_current_bundle_is_evaluated_without_another_export(copied: Exported, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("some words of our own, again and again and again. " * 4)
    result = export_here(copied.document, copied.workspace.root, evaluate=True, evaluate_text=text)
    assert result.current
    assert result.evaluation is not None
    assert (result.evaluation.mean_kl, result.evaluation.top1_agreement) == (0.0, 1.0)
    assert result.evaluation.chunk_errors == (0.0, 0.0)
    assert ExportReport.read(copied.bundle / "export-report.json").evaluation == result.evaluation
