"""Argument lists survive the way through a POSIX shell, whatever they hold."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etcli.device.shelltext import command_text, script

# Surrogates have no UTF-8 form; a NUL cannot stand in an argument.
_words = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=30)


def _sh(text: str) -> bytes:
    return subprocess.run(["/bin/sh", "-c", text], capture_output=True, timeout=20, check=True).stdout


@given(st.lists(_words, max_size=5))
def test_a_shell_gives_the_program_exactly_the_words(words: list[str]) -> None:
    output = _sh(command_text(["printf", "%s\\0", "first", *words]))
    assert output.decode().split("\0")[1:-1] == words


@given(_words)
def test_a_variable_arrives_as_it_is(value: str) -> None:
    output = _sh(command_text(["sh", "-c", 'printf %s "$ETCLI_X"'], env={"ETCLI_X": value}))
    assert output.decode() == value


def test_the_program_runs_in_the_folder(tmp_path) -> None:
    folder = tmp_path / 'it\'s $(touch no) "here"'
    folder.mkdir()
    assert _sh(command_text(["pwd"], cwd=str(folder))).decode().rstrip("\n") == str(folder)


def test_a_missing_folder_is_not_run_elsewhere() -> None:
    done = subprocess.run(["/bin/sh", "-c", command_text(["echo", "ran"], cwd="/nowhere/at/all")], capture_output=True)
    assert (done.returncode != 0, done.stdout) == (True, b"")


def test_a_script_gets_its_values_as_arguments() -> None:
    text = command_text(script('printf "%s|%s" "$1" "$2"', "$HOME", "a b; echo c"))
    assert _sh(text) == b"$HOME|a b; echo c"


@pytest.mark.parametrize(
    ("argv", "cwd", "env"),
    [
        ([], None, None),
        ([""], None, None),
        (["-c", "x"], None, None),
        (["a\0b"], None, None),
        (["ls"], "relative", None),
        (["ls"], "/a\0", None),
        (["ls"], None, {"A B": "1"}),
        (["ls"], None, {"A=B": "1"}),
        (["ls"], None, {"": "1"}),
        (["ls"], None, {"A": "\0"}),
    ],
)
def test_what_cannot_be_said_is_refused(argv, cwd, env) -> None:
    with pytest.raises(ValueError, match=r"."):
        command_text(argv, cwd=cwd, env=env)


def test_the_shell_becomes_the_program() -> None:
    own, inner = _sh("echo $$; " + command_text(["sh", "-c", "echo $$"])).split()
    assert own == inner
