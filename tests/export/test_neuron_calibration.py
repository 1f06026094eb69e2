"""What chunks are calibrated on is what they will see: transformers' hidden states, cut into the runner's calls."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from etcli.checkpoint.opening import open_checkpoint
from etcli.common.errors import EtcliError
from etcli.export.job import CalibrationWork, Job, Outcome
from etcli.export.neuron.calibration import calibrate
from etcli.export.neuron.plan import npu_plan
from etcli.export.neuron.records import Records, record_file
from etcli.llama.norm import MeanRMSNorm, RMSNorm, use_means
from etcli.llama.prefill import split_prompt
from etcli.manifests.bundle import Shape
from etcli.recipe.loader import load
from etcli.tokenizer.chat import encode_prompt
from etcli.tokenizer.opening import open_tokenizer

SHAPES = (Shape(tokens=8, cache=32), Shape(tokens=1, cache=32))
PROMPTS = (tuple(range(20, 33)), (7, 3, 5))


@pytest.fixture(scope="module")
def recorded(small_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    work = CalibrationWork(prompts=PROMPTS, response_cap=3, shapes=SHAPES, layers=1, stop_ids=(1,))
    calibrate(Job(parent=os.getpid(), checkpoint=str(small_checkpoint), threads=1, work=work), work, folder)
    return folder


def test_each_chunk_is_shown_what_the_network_gives_it(recorded: Path, small_checkpoint: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(small_checkpoint, dtype=torch.float32).eval()
    for number, prompt in enumerate(PROMPTS):
        ids = torch.tensor([prompt])
        with torch.no_grad():
            answered = model.generate(ids, max_new_tokens=3, do_sample=False, eos_token_id=1, pad_token_id=1)
            states = model(answered, output_hidden_states=True).hidden_states
        fed = [token for token in answered[0, len(prompt) :].tolist() if token != 1]
        calls = [*split_prompt(len(prompt), (8, 1))]
        for chunk in range(2):
            records = Records(recorded / record_file(chunk))
            own = records.calls[number]
            assert own[: len(calls)] == calls
            assert [(call.tokens, call.padding) for call in own[len(calls) :]] == [(1, 0)] * len(fed)
            rows = [records.hidden(number, index)[0, call.padding :] for index, call in enumerate(own)]
            torch.testing.assert_close(
                torch.cat(rows), states[chunk][0, : len(prompt) + len(fed)], rtol=1e-4, atol=1e-4
            )


def test_padding_is_the_embedding_of_the_runners_padding(recorded: Path, small_checkpoint: Path) -> None:
    config = json.loads((small_checkpoint / "config.json").read_text())
    records = Records(recorded / record_file(0))
    padded = [(n, i, call) for n, own in enumerate(records.calls) for i, call in enumerate(own) if call.padding]
    assert padded
    embedding = open_checkpoint(small_checkpoint).read("model.embed_tokens.weight").float()
    assert embedding.shape[1] == config["hidden_size"]
    for number, index, call in padded:
        rows = records.hidden(number, index)[0, : call.padding]
        assert torch.equal(rows, embedding[:1].expand_as(rows))
    assert all(call.real > 0 for own in records.calls for call in own)


def test_no_answer_is_generated_where_none_is_asked_for(small_checkpoint: Path, tmp_path: Path) -> None:
    work = CalibrationWork(prompts=PROMPTS, response_cap=0, shapes=SHAPES, layers=2, stop_ids=())
    calibrate(Job(parent=os.getpid(), checkpoint=str(small_checkpoint), threads=1, work=work), work, tmp_path)
    records = Records(tmp_path / record_file(0))
    assert [sum(call.real for call in own) for own in records.calls] == [13, 3]
    assert [file.path for file in Outcome.read(tmp_path / Outcome.FILE).files] == ["chunk_0.safetensors"]


RECIPE = """\
name: a
model: {{source: {source}}}
export: {{backend: neuron, precision: A16W8, chunks: 2, shapes: [8t64c, 1t64c]}}
neuron: {{platform: mt6991, sdk: simulator, calibration: {calibration}}}
"""


def plan_of(folder: Path, source: Path, calibration: str) -> tuple[tuple[int, ...], ...]:
    path = folder / "recipe.yaml"
    path.write_text(RECIPE.format(source=source, calibration=calibration))
    plan = npu_plan(load(str(path)), open_tokenizer(source))
    assert plan is not None
    return plan.prompts


def test_prompts_are_put_into_the_models_chat_template(small_checkpoint: Path, tmp_path: Path) -> None:
    tokenizer = open_tokenizer(small_checkpoint)
    (tmp_path / "texts.txt").write_text("hello there\n\n  how are you \n")
    wanted = [tuple(encode_prompt(tokenizer, text, chat=True, system=None)) for text in ("hello there", "how are you")]
    assert list(plan_of(tmp_path, small_checkpoint, "{file: texts.txt}")) == wanted
    assert list(plan_of(tmp_path, small_checkpoint, "{prompts: [hello there, how are you]}")) == wanted


def test_prompts_longer_than_the_cache_are_refused_all_at_once(small_checkpoint: Path, tmp_path: Path) -> None:
    long = "word " * 100
    with pytest.raises(EtcliError) as caught:
        plan_of(tmp_path, small_checkpoint, f"{{prompts: ['{long}', hi, '{long}']}}")
    assert [problem.code for problem in caught.value.problems] == ["recipe.calibration"] * 2
    assert "prompt 3" in caught.value.problems[1].message


def test_problems_of_a_file_are_told_with_its_lines_and_not_without_end(small_checkpoint: Path, tmp_path: Path) -> None:
    long = "word " * 100
    (tmp_path / "texts.txt").write_text(f"\ufeffhi\n\n{long}\n" + f"{long}\n" * 200, encoding="utf-8")
    with pytest.raises(EtcliError) as caught:
        plan_of(tmp_path, small_checkpoint, "{file: texts.txt}")
    first, *_, last = problems = caught.value.problems
    assert (first.file, first.line) == (tmp_path / "texts.txt", 3)
    assert "prompt 2 is of" in first.message
    assert len(problems) == 21
    assert "more prompts are wrong" in last.message


def test_a_byte_order_mark_is_no_part_of_a_prompt(small_checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\ufeffhello there\r\nhow are you\r\n", encoding="utf-8")
    wanted = plan_of(tmp_path, small_checkpoint, "{prompts: [hello there, how are you]}")
    assert plan_of(tmp_path, small_checkpoint, "{file: texts.txt}") == wanted


@pytest.mark.parametrize(
    ("specs", "word"), [("{gno: EXP}", "'EXP'"), ("{gno-ex: ''}", "--gno-exp"), ("{HighAddr: '1', gno: LTS}", None)]
)
def test_the_simulated_compilers_options_are_looked_at_first(
    specs: str, word: str | None, small_checkpoint: Path, tmp_path: Path
) -> None:
    calibration = f"{{prompts: [hi]}}, compile_specs: {specs}"
    if word is None:
        assert plan_of(tmp_path, small_checkpoint, calibration)
        return
    with pytest.raises(EtcliError, match=word) as caught:
        plan_of(tmp_path, small_checkpoint, calibration)
    assert [problem.code for problem in caught.value.problems] == ["recipe.compile_specs"]


def test_the_norm_that_takes_means_is_the_same_norm() -> None:
    norm = RMSNorm(16, 1e-5)
    norm.weight = torch.nn.Parameter(torch.randn(16), requires_grad=False)
    holder = torch.nn.ModuleDict({"norm": norm, "other": torch.nn.Linear(2, 2)})
    x = torch.randn(1, 3, 16)
    before = norm(x)
    use_means(holder)
    assert isinstance(holder["norm"], MeanRMSNorm)
    torch.testing.assert_close(holder["norm"](x), before)
