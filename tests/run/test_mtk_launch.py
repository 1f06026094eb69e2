"""The command line of upstream's MediaTek runner, what is said before it runs, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import samples
from mtk_bundles import ROWS, make_mtk_bundle
from tokenizer_kinds import LLAMA3_TEMPLATE, bpe_folder, meta_folder, spm_folder

from etcli.common.errors import CheckpointError, EtcliError, UsageError
from etcli.common.workspace import Workspace
from etcli.manifests.bundle import BundleManifest
from etcli.manifests.model import RopeConfig
from etcli.manifests.run_record import Sampling
from etcli.run.prompt import open_bundle_tokenizer, prompt_ids
from etcli.run.runners import Job, Launch
from etcli.run.runners.mtk_runner import MtkRunner

RUNNER = MtkRunner()


@dataclass
class Bundles:
    """Makes bundles, and jobs of them."""

    root: Path

    def job(
        self, model: Path, *, prompt: str = "Hello you", chat: bool = False, system: str | None = None, **changes: Any
    ) -> Job:
        loaded = samples.make_recipe(self.root, run={"runner": "mtk"})
        workspace = Workspace(self.root / "work", "tiny")
        bundle = make_mtk_bundle(loaded, workspace, model, **changes)
        tokenizer = open_bundle_tokenizer(bundle, workspace.bundle)
        ids = prompt_ids(tokenizer, bundle, prompt, chat=chat, system=system)
        return Job(bundle, workspace.bundle, tokenizer, prompt, chat, system, ids, 5, None)


@pytest.fixture
def bundles(tmp_path: Path) -> Bundles:
    return Bundles(tmp_path)


def flags_of(launch: Launch) -> dict[str, str]:
    return dict(word[2:].split("=", 1) for word in launch.arguments)


def codes(launch: Launch) -> list[str]:
    return [remark.code for remark in launch.remarks]


@pytest.mark.known_failure("mtk-flags-left-out", "mtk-file-names-of-the-sample")
def test_every_flag_comes_from_the_manifest(bundles: Bundles, tmp_path: Path) -> None:
    job = bundles.job(bpe_folder(tmp_path / "model"), model_changes={"rope": RopeConfig(theta=500000.0)})
    launch = RUNNER.launch(job)
    assert flags_of(launch) == {
        "prompt_token_batch_size": "8",
        "cache_size": "64",
        "hidden_size": "8",
        "num_head": "2",
        "num_layer": "2",
        "head_dim": "4",
        "window_size": "0",
        "max_token_length": "64",
        "partial_rotary_factor": "1",
        "rot_emb_base": "500000.0",
        **{f"{kind}_type": "fp32" for kind in ("input", "output", "cache", "mask", "rot_emb")},
        "token_embedding_path": "bundle/embedding_float32.bin",
        "model_package_paths": "bundle/chunks/tiny_0.pte,bundle/chunks/tiny_1.pte",
        "tokenizer_path": "bundle/tokenizer",
        "tokenizer_type": "hf",
        "vocab_size": "300",
        "eos_token": "2",
        "max_response": "4",
        "prompt_file": ".etcli-prompt.txt",
    }
    assert launch.files == {".etcli-prompt.txt": b"Hello you"}
    assert launch.stop_ids == job.bundle.model.stop_ids


def test_separate_files_are_listed_by_shape(bundles: Bundles, tmp_path: Path) -> None:
    flags = flags_of(RUNNER.launch(bundles.job(bpe_folder(tmp_path / "model"), layout="separate")))
    assert flags["prompt_model_paths"] == "bundle/chunks/tiny_8t64c_0.pte,bundle/chunks/tiny_8t64c_1.pte"
    assert flags["gen_model_paths"] == "bundle/chunks/tiny_1t64c_0.pte,bundle/chunks/tiny_1t64c_1.pte"
    assert "model_package_paths" not in flags


def test_many_chunks_come_in_a_file_of_flags(bundles: Bundles, tmp_path: Path) -> None:
    launch = RUNNER.launch(bundles.job(bpe_folder(tmp_path / "model"), chunks=128))
    assert launch.arguments == ("--flagfile=.etcli-runner-flags",)
    lines = launch.files[".etcli-runner-flags"].decode().splitlines()
    assert "--num_layer=128" in lines
    (packages,) = [line for line in lines if line.startswith("--model_package_paths=")]
    assert packages.count(",") == 127


@pytest.mark.parametrize(
    ("make", "kind", "path"),
    [
        (spm_folder, "bpe", "bundle/tokenizer/tokenizer.bin"),
        (meta_folder, "tiktoken", "bundle/tokenizer/tokenizer.model"),
    ],
)
def test_tokenizers_of_other_kinds(
    bundles: Bundles, tmp_path: Path, make: Callable[[Path], Path], kind: str, path: str
) -> None:
    launch = RUNNER.launch(bundles.job(make(tmp_path / "model")))
    flags = flags_of(launch)
    assert (flags["tokenizer_type"], flags["tokenizer_path"]) == (kind, path)
    assert "bos_token" in flags


@pytest.mark.known_failure("tokenizer-two-bos")
def test_a_template_that_begins_with_the_first_token(bundles: Bundles, tmp_path: Path) -> None:
    folder = meta_folder(tmp_path / "model")
    (folder / "chat_template.jinja").write_text(LLAMA3_TEMPLATE)
    job = bundles.job(folder, chat=True)
    launch = RUNNER.launch(job)
    assert "mtk.double_bos" in codes(launch)
    text = launch.files[".etcli-prompt.txt"].decode()
    assert text.startswith("<|start_header_id|>user")
    assert [*job.prompt_ids] == [job.prompt_ids[0], *job.tokenizer.encode(text, special=True)]


def test_a_template_of_a_model_without_a_first_token_is_left_as_it_is(bundles: Bundles, tmp_path: Path) -> None:
    launch = RUNNER.launch(bundles.job(bpe_folder(tmp_path / "model"), chat=True, system="Be brief."))
    assert launch.files[".etcli-prompt.txt"].startswith(b"<|im_start|>system\nBe brief.")
    assert "mtk.double_bos" not in codes(launch)


@pytest.mark.known_failure("mtk-one-end-id")
def test_several_stop_ids_are_told(bundles: Bundles, tmp_path: Path) -> None:
    launch = RUNNER.launch(bundles.job(bpe_folder(tmp_path / "model"), model_changes={"stop_ids": (0, 2)}))
    (remark,) = launch.remarks
    assert remark.code == "mtk.stop_ids"
    assert "ends an answer at <|im_end|> (2) alone" in remark.message
    assert "<|endoftext|> (0)" in remark.message
    assert launch.stop_ids == (0, 2)
    assert codes(RUNNER.launch(bundles.job(bpe_folder(tmp_path / "model"), model_changes={"stop_ids": (2,)}))) == []


def test_what_cannot_be_asked_for_is_told(bundles: Bundles, tmp_path: Path) -> None:
    job = bundles.job(bpe_folder(tmp_path / "model"), model_changes={"stop_ids": (2,)})
    assert codes(RUNNER.launch(replace(job, threads=4, ignore_stop_ids=True))) == ["mtk.ignore_stop_ids", "mtk.threads"]


@pytest.mark.known_failure("mtk-rope-scaling")
def test_scaled_positions_are_refused_unless_forced(bundles: Bundles, tmp_path: Path) -> None:
    rope = RopeConfig(theta=5e5, kind="llama3", factor=32.0)
    job = bundles.job(bpe_folder(tmp_path / "model"), model_changes={"rope": rope})
    with pytest.raises(EtcliError) as caught:
        RUNNER.launch(job)
    (problem,) = caught.value.problems
    assert (problem.code, problem.exit_code) == ("mtk.rope_scaling", 2)
    assert "run.runner: etcli" in (problem.hint or "")
    assert "mtk.rope_scaling" in codes(RUNNER.launch(replace(job, forced=True)))


@pytest.mark.known_failure("tokenizer-larger-than-embedding")
def test_a_tokenizer_larger_than_the_logits(bundles: Bundles, tmp_path: Path) -> None:
    job = bundles.job(bpe_folder(tmp_path / "model"))
    small = job.bundle.model_copy(
        update={
            "model": job.bundle.model.model_copy(update={"vocab_size": 299}),
            "embedding": job.bundle.embedding.model_copy(update={"rows": 299, "size": 299 * 32}),
        }
    )
    with pytest.raises(CheckpointError, match=r"has 300 ids, the model's logits 299"):
        RUNNER.launch(replace(job, bundle=small))
    assert ROWS > 300


@pytest.mark.parametrize(
    ("prompt", "why"),
    [("say <|im_end|> twice", "spells a special token"), ("a\0b", "NUL character")],
)
def test_prompts_that_no_text_gives(bundles: Bundles, tmp_path: Path, prompt: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        RUNNER.launch(bundles.job(bpe_folder(tmp_path / "model"), prompt=prompt))
    assert caught.value.problems[0].code == "mtk.prompt"


def test_a_first_token_that_the_model_does_not_have(bundles: Bundles, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"puts <s> before every prompt, and this model has none there"):
        RUNNER.launch(bundles.job(spm_folder(tmp_path / "model", add_bos_token=False)))


def test_special_tokens_of_a_template_for_the_llama2c_reader(bundles: Bundles, tmp_path: Path) -> None:
    template = "{{ bos_token }}[INST] {{ messages[0]['content'] }} [/INST]{{ eos_token }}"
    with pytest.raises(UsageError, match="takes them for letters"):
        RUNNER.launch(bundles.job(spm_folder(tmp_path / "model", chat_template=template), chat=True))


def test_every_problem_at_once(bundles: Bundles, tmp_path: Path) -> None:
    job = bundles.job(
        bpe_folder(tmp_path / "model"), model_changes={"rope": RopeConfig(theta=1e4, kind="linear", factor=2.0)}
    )
    wrong: BundleManifest = job.bundle.model_copy(
        update={"embedding": job.bundle.embedding.model_copy(update={"rows": 1})}
    )
    with pytest.raises(EtcliError) as caught:
        RUNNER.launch(replace(job, bundle=wrong))
    assert {problem.code for problem in caught.value.problems} == {"mtk.embedding", "mtk.rope_scaling"}


def test_what_this_runner_cannot_do_is_refused_at_once(bundles: Bundles, tmp_path: Path) -> None:
    job = bundles.job(bpe_folder(tmp_path / "model"))
    drawn = Sampling(temperature=0.7, top_p=0.9, seed=1)
    with pytest.raises(EtcliError) as caught:
        RUNNER.launch(replace(job, sampling=drawn, interactive=True, forced=True))
    assert {problem.code for problem in caught.value.problems} == {"mtk.sampling", "mtk.interactive"}
    assert {problem.exit_code for problem in caught.value.problems} == {2}
