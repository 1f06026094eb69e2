"""`hf:` sources against a hub on loopback: what is fetched, what is found again without a network, and every refusal explained."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import local_hub
import pytest
from local_hub import COMMIT, Hub
from tokenizer_kinds import rank_file
from torch_writing import write_meta

from etcli.checkpoint import hub_errors
from etcli.checkpoint.checks import header_problems
from etcli.checkpoint.hub import HubSource, hub_cache
from etcli.checkpoint.hub_files import choose
from etcli.checkpoint.opening import open_checkpoint
from etcli.checkpoint.source import fetch, peek
from etcli.common.errors import CheckpointError, EtcliError, ExitCode, Problem
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.schema import Recipe
from etcli.recipe.sources import source_stamp

Build = Callable[..., Path]
NAME = "someone/small-llama"
QUIET = Console(verbosity=-1)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with local_hub.serve() as served:
        for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("HF_ENDPOINT", served.address)
        yield served


@pytest.fixture
def model(hub: Hub, random_llama: Build, tmp_path: Path) -> Path:
    """A repository with all that publishers put there: weights in two forms, code, pictures."""
    folder = tmp_path / "published"
    shutil.copytree(random_llama(tokenizer=True, shard_size="40KB"), folder)
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02pickle")
    (folder / "modeling_evil.py").write_text("raise SystemExit")
    (folder / "README.md").write_text("words")
    (folder / "original").mkdir()
    (folder / "original" / "consolidated.00.pth").write_bytes(b"PK\3\4")
    hub.models[NAME] = folder
    return folder


def recipe(source: str, **keys: object) -> LoadedRecipe:
    resolved = Recipe.model_validate({"name": "hub", "model": {"source": source, **keys}})
    return LoadedRecipe(recipe=resolved, path=Path("recipe.yaml"), base=Path.cwd(), document={})


def refused(loaded: LoadedRecipe) -> Problem:
    with pytest.raises(EtcliError) as caught:
        fetch(loaded, QUIET)
    (problem,) = caught.value.problems
    assert problem.hint
    assert problem.file == Path("recipe.yaml")
    return problem


def test_only_what_is_needed_is_fetched_once(hub: Hub, model: Path) -> None:
    loaded = recipe(f"hf:{NAME}@main")
    assert peek(loaded) is None
    folder = fetch(loaded, QUIET)
    assert folder == hub_cache() / "models--someone--small-llama" / "snapshots" / COMMIT
    assert header_problems(folder) == []
    assert open_checkpoint(folder).config.num_layers == 2
    fetched = {path.name for path in folder.iterdir()}
    assert {"config.json", "generation_config.json", "tokenizer.json", "model.safetensors.index.json"} <= fetched
    assert fetched.isdisjoint({"pytorch_model.bin", "modeling_evil.py", "README.md", "original"})
    assert set(hub.downloads) == fetched
    asked = len(hub.requests)
    assert fetch(loaded, QUIET) == folder == peek(loaded)
    assert len(hub.requests) == asked, "what the cache has is not asked for again"


def test_the_commit_is_told(hub: Hub, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fetch(recipe(f"hf:{NAME}@main"), Console())
    assert f"{NAME} at main is commit {COMMIT}" in "".join(capsys.readouterr())


def test_a_commit_needs_no_branch(hub: Hub, model: Path) -> None:
    loaded = recipe(f"hf:{NAME}@{COMMIT}")
    assert fetch(loaded, QUIET) == peek(loaded)


def test_a_cache_that_others_left_incomplete_is_completed(hub: Hub, model: Path) -> None:
    loaded = recipe(f"hf:{NAME}@main")
    folder = fetch(loaded, QUIET)
    for name in ("model-00002-of-00012.safetensors", "tokenizer.json", "config.json"):
        lost = sorted(folder.glob("model-0*"))[1] if name.startswith("model-") else folder / name
        lost.unlink()
        assert peek(loaded) is None
        assert fetch(loaded, QUIET) == folder
        assert lost.is_file()


def test_without_a_network_the_cache_is_enough(hub: Hub, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = recipe(f"hf:{NAME}@main")
    folder = fetch(loaded, QUIET)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("ETCLI_OFFLINE", "1")
    assert fetch(loaded, QUIET) == folder


@pytest.mark.parametrize("variable", ["ETCLI_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline(hub: Hub, model: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    problem = refused(recipe(f"hf:{NAME}@main"))
    assert (problem.code, problem.exit_code) == ("hub.offline", ExitCode.CHECKPOINT)
    assert variable in problem.message
    assert hub.requests == []


def test_no_network(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    problem = refused(recipe(f"hf:{NAME}@main"))
    assert (problem.code, problem.exit_code) == ("hub.network", ExitCode.CHECKPOINT)
    assert "HF_HOME" in str(problem.hint)


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ((401, "GatedRepo"), "hub.gated", "gated"),
        ((403, "GatedRepo"), "hub.gated", "HTTP 403"),
        ((403, ""), "hub.gated", "HTTP 403"),
        ((401, "RepoNotFound"), "hub.repository", NAME),
        ((404, "RepoNotFound"), "hub.repository", NAME),
        ((404, "RevisionNotFound"), "hub.revision", "main"),
        ((503, ""), "hub.download", "503"),
    ],
    ids=str,
)
def test_what_the_hub_refuses(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, str], code: str, words: str
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    hub.refuses[NAME] = answer
    problem = refused(recipe(f"hf:{NAME}@main"))
    assert (problem.code, problem.exit_code) == (code, ExitCode.CHECKPOINT)
    assert words in problem.message


def test_a_revision_that_is_none(hub: Hub, model: Path) -> None:
    assert refused(recipe(f"hf:{NAME}@v9")).code == "hub.revision"


def test_a_repository_without_weights(hub: Hub, tmp_path: Path) -> None:
    hub.models[NAME] = tmp_path / "empty"
    hub.models[NAME].mkdir()
    (tmp_path / "empty" / "README.md").write_text("words")
    problem = refused(recipe(f"hf:{NAME}@main"))
    assert problem.code == "hub.files"
    assert "README.md" in problem.message


def test_the_package_is_named_where_it_is_missing(hub: Hub, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = recipe(f"hf:{NAME}@main")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    problem = refused(loaded)
    assert (problem.code, problem.exit_code) == ("hub.package", ExitCode.ENVIRONMENT)
    assert "etcli[hub]" in str(problem.hint)


def test_looking_into_the_cache_needs_neither_package_nor_torch(hub: Hub, model: Path) -> None:
    fetch(recipe(f"hf:{NAME}@main"), QUIET)
    program = (
        "import sys; sys.modules['huggingface_hub'] = None\n"
        "from etcli.checkpoint.hub import HubSource\n"
        f"print(HubSource({NAME!r}, 'main').cached, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip() == f"{HubSource(NAME, 'main').cached} False"


def test_a_fresh_process_fetches(hub: Hub, model: Path, tmp_path: Path) -> None:
    """The package brings its parts only when asked for, and other tests have asked for them in this process."""
    program = (
        "from etcli.checkpoint.hub import HubSource; from etcli.output.console import Console\n"
        f"print(HubSource({NAME!r}, 'main').fetch(Console(verbosity=-1)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=os.environ)
    assert done.stdout.strip() == str(HubSource(NAME, "main").cached), done.stderr


def test_a_snapshot_is_outdated_when_a_blob_changes(hub: Hub, model: Path) -> None:
    loaded = recipe(f"hf:{NAME}@main")
    folder = fetch(loaded, QUIET)
    before = source_stamp(loaded, folder)
    assert before == source_stamp(loaded, folder)
    assert "config.json" in before
    blob = (folder / "config.json").resolve()
    blob.write_text(json.dumps(json.loads(blob.read_text()) | {"rope_theta": 7.0}, indent=1))
    assert source_stamp(loaded, folder) != before


def test_a_repository_of_metas_own_form_alone(hub: Hub, random_llama: Build, tmp_path: Path) -> None:
    published = tmp_path / "published"
    original = write_meta(random_llama(), published / "original", shards=2)
    (original / "tokenizer.model").write_bytes(rank_file())
    (published / "README.md").write_text("words")
    hub.models[NAME] = published
    loaded = recipe(f"hf:{NAME}@main")
    folder = fetch(loaded, QUIET)
    assert folder.name == "original"
    assert open_checkpoint(folder).format == "meta"
    assert peek(loaded) == folder
    # what another program fetched only half of is fetched again, though no name tells how many shards there are
    (folder / "consolidated.01.pth").unlink()
    assert peek(loaded) is None
    assert fetch(loaded, QUIET) == folder
    assert header_problems(folder) == []


def test_a_folder_has_no_sha256(hub: Hub, model: Path) -> None:
    problem = refused(recipe(f"hf:{NAME}@main", sha256="0" * 64))
    assert problem.code == "source.sha256"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("config.json", "model.safetensors", "pytorch_model.bin"), ("config.json", "model.safetensors")),
        (("config.json", "pytorch_model.bin", "x.py"), ("config.json", "pytorch_model.bin")),
        (
            ("consolidated.00.pth", "params.json", "tokenizer.model"),
            ("tokenizer.model", "consolidated.00.pth", "params.json"),
        ),
        (
            (
                "README.md",
                "config.json",
                "original/consolidated.00.pth",
                "original/params.json",
                "original/tokenizer.model",
            ),
            ("original/tokenizer.model", "original/consolidated.00.pth", "original/params.json"),
        ),
        (
            ("config.json", "model.safetensors", "original/consolidated.00.pth", "original/params.json"),
            ("config.json", "model.safetensors"),
        ),
        (("consolidated.safetensors", "params.json", "x.bin"), ("consolidated.safetensors", "params.json")),
        (
            ("consolidated.00.pth", "consolidated.safetensors", "params.json"),
            ("consolidated.safetensors", "params.json"),
        ),
        (("a-00001-of-00002.gguf", "a-00002-of-00002.gguf"), ("a-00001-of-00002.gguf", "a-00002-of-00002.gguf")),
        (("q/a.gguf", "README.md"), ("q/a.gguf",)),
        (("model.safetensors.index.json", "config.json"), None),
        (("a.gguf", "b.gguf"), None),
        ((), None),
    ],
    ids=str,
)
def test_one_form_of_the_weights_is_chosen(names: tuple[str, ...], expected: tuple[str, ...] | None) -> None:
    if expected is None:
        with pytest.raises(CheckpointError) as caught:
            choose("hf:a/b@main", names)
        assert caught.value.problems[0].code == "hub.files"
    else:
        assert choose("hf:a/b@main", names).files == expected


def test_secrets_in_addresses_are_not_shown() -> None:
    with pytest.raises(CheckpointError) as caught, hub_errors.explained("hf:a/b@main", "a/b"):
        raise OSError("cannot reach proxy://user:secret@somewhere")
    assert "secret" not in str(caught.value)
