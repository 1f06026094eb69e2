"""Prompts and numbers of the command line: every file and number that cannot be meant is refused before anything else is done."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from etcli.cli import main, values
from etcli.cli.main import cli
from etcli.cli.values import prompt_text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"one line\n", "one line"),
        (b"two\r\nlines\r\n", "two\nlines"),
        (b"\xef\xbb\xbfmarked", "marked"),
        ("$(x) `y` 'q' \"d\" \\ é 😀 \u202e\0".encode(), "$(x) `y` 'q' \"d\" \\ é 😀 \u202e\0"),
    ],
)
def test_a_file_is_taken_as_it_is(tmp_path: Path, data: bytes, text: str) -> None:
    file = tmp_path / "prompt"
    file.write_bytes(data)
    assert prompt_text(None, file) == text


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"\n", "empty"),
        (b"abc\xff", "byte 3 is 0xff"),
        (b"\xff\xfeh\0i\0", "UTF-16"),
        (b"\xfe\xff\0h\0i", "UTF-16"),
    ],
)
def test_a_file_that_is_no_prompt(tmp_path: Path, data: bytes, words: str) -> None:
    file = tmp_path / "prompt"
    file.write_bytes(data)
    with pytest.raises(click.UsageError, match=words):
        prompt_text(None, file)


def test_a_file_without_end_is_read_no_further_than_a_prompt_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "_LONGEST_PROMPT_FILE", 1 << 20)
    with pytest.raises(click.UsageError, match="more than 1 MiB"):
        prompt_text(None, Path("/dev/zero"))


def test_a_pipe_is_a_file_too() -> None:
    read, write = os.pipe()
    os.write(write, b"through a pipe")
    os.close(write)
    try:
        assert prompt_text(None, Path(f"/dev/fd/{read}")) == "through a pipe"
    finally:
        os.close(read)


def test_standard_input_is_a_file_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("piped é\n".encode())))
    assert prompt_text(None, Path("-")) == "piped é"
    assert sys.stdin.buffer.read() == b"", "and stays open"
    done = CliRunner().invoke(cli, ["run", "--interactive", "--prompt-file", "-"], input="hello")
    assert done.exit_code == 2
    assert "standard input itself" in done.output


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--temperature", "nan"),
        ("run", "--top-p", "nan"),
        ("run", "--max-new-tokens", "99999999999"),
        ("bench", "--pause", "nan"),
        ("bench", "--max-new-tokens", "99999999999"),
        ("bench", "--runs", "0"),
    ],
)
def test_numbers_that_are_none(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli, list(words))
    assert done.exit_code == 2
    assert words[1] in done.output


def test_a_variable_of_ours_that_is_no_text(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "etcli", "run"],
        cwd=tmp_path,
        env={**os.environ, "ETCLI_RUN_PROMPT": os.fsdecode(b"a\xffb")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert "the value of ETCLI_RUN_PROMPT is not valid UTF-8" in done.stderr


def test_a_closed_standard_input_is_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    main._open_streams()
    assert sys.stdin.buffer.read() == b""
    assert not sys.stdin.isatty()
