"""What precision 8da4w leaves of the default model: measured over a text, and on the question of the default recipe."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from etcli.checkpoint.opening import open_checkpoint
from etcli.export.evaluation import evaluation_ids, evaluation_text
from etcli.export.evaluation_worker import compared
from etcli.export.job import EmbeddingSettings, PrecisionSettings
from etcli.export.reference_worker import rounding_of
from etcli.llama.passes import StreamedPasses
from etcli.llama.reference import ReferenceDecoder
from etcli.tokenizer.opening import open_tokenizer
from etcli.verbs.comparison import GAPS

SETTINGS = PrecisionSettings(precision="8da4w", group_size=32, head="8da8w")
EMBEDDING = EmbeddingSettings(dtype="int8", group_size=32)

PROMPT = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2]
PROMPT += [198, 1, 4093, 198, 1780, 314, 260, 3575, 282, 3085, 47, 2, 198, 1, 520, 9531, 198]
ANSWER = [504, 3575, 282, 3085, 314, 19081, 30, 2]
"""The capital of Japan is Tokyo."""


@pytest.fixture(autouse=True)
def few_threads() -> None:
    torch.set_num_threads(2)


@pytest.mark.full
def test_agreement_with_float32_over_a_text(default_model: Path) -> None:
    ids = evaluation_ids(open_tokenizer(default_model), evaluation_text(None))[:201]
    checkpoint = open_checkpoint(default_model)
    found = compared(checkpoint, rounding_of(SETTINGS, EMBEDDING), ids, 6, lambda _event: None)
    assert found.positions == 200
    # measured over 299 positions: 0.69, 0.355, 39.3 against 29.3
    assert found.top1_agreement > 0.6
    assert found.mean_kl < 0.5
    assert found.perplexity < 1.6 * found.perplexity_float
    assert len(found.chunk_errors) == 5
    assert all(0 < error < 0.5 for error in found.chunk_errors)


@pytest.mark.full
def test_the_right_answer_stays_within_the_gap(default_model: Path) -> None:
    checkpoint = open_checkpoint(default_model)
    decoder = ReferenceDecoder(checkpoint, StreamedPasses(checkpoint, rounding_of(SETTINGS, EMBEDDING)))
    judged = decoder.judge(PROMPT, ANSWER, cache_length=512)
    assert max(item.gap for item in judged) < GAPS["8da4w"]
    assert sum(item.gap == 0 for item in judged) >= 6
