"""Other interpreters: found by path or name, asked without running what stands in the current folder, and explained where they do not answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import samples

from etcli.common.errors import ExitCode, ToolError
from etcli.toolchain.interpreter import ask, worker_python
from etcli.toolchain.loopback import check_loopback


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real environment that has a package of MediaTek's name, of which nothing can be imported."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
    (site,) = folder.glob("lib/python3.*/site-packages")
    info = site / "mtk_neuron-8.2.23.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mtk_neuron\nVersion: 8.2.23\n")
    (site / "mtk_neuron.py").write_text("raise SystemExit('imported')\n")
    return folder / "bin" / "python"


def test_a_real_interpreter_tells_its_packages(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json.py", "platform.py", "importlib.py"):
        (tmp_path / name).write_text("raise SystemExit('the wrong one')\n")
    monkeypatch.chdir(tmp_path)
    found = ask(environment, ["mtk_neuron", "mtk_converter"])
    assert found.packages == {"mtk_neuron": "8.2.23"}
    assert found.minor == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert found.implementation == "CPython"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            "#!/bin/sh\necho 'pyenv: python3.10: command not found' >&2\necho more >&2\nexit 127\n",
            "pyenv: python3.10: command not found",
        ),
        ("#!/bin/sh\necho hello\n", "its answer is no answer"),
        ("#!/bin/sh\necho '{}'\n", "its answer is no answer"),
        ("#!/bin/sh\necho '[1]'\n", "its answer is no answer"),
        ("#!/bin/sh\n", "its answer is no answer"),
        ("#!/bin/sh\nkill -9 $$\n", "killed by SIGKILL"),
        ("no program", "cannot be started"),
        ("#!/nowhere/interpreter\n", "cannot be started"),
    ],
)
def test_what_does_not_answer_as_a_python_is_none(tmp_path: Path, program: str, said: str) -> None:
    path = tmp_path / "python"
    path.write_text(program)
    path.chmod(0o755)
    with pytest.raises(ToolError) as caught:
        ask(path, ["mtk_neuron"])
    [problem] = caught.value.problems
    assert (problem.code, problem.exit_code) == ("python.broken", ExitCode.ENVIRONMENT)
    assert said in problem.message


def test_an_interpreter_is_named_by_path_or_found_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def recipe(**export: str) -> object:
        return samples.make_recipe(tmp_path, export={"backend": "neuron", "precision": "A16W8", **export})

    path = tmp_path / "bin" / "python-of-mine"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    assert worker_python(recipe()) == Path(sys.executable)  # type: ignore[arg-type]
    assert worker_python(recipe(python="bin/python-of-mine")) == path  # type: ignore[arg-type]
    for missing in ("python-of-mine", "bin/none", "./bin"):
        with pytest.raises(ToolError) as caught:
            worker_python(recipe(python=missing))  # type: ignore[arg-type]
        assert caught.value.problems[0].code == "python.missing"
    monkeypatch.setenv("PATH", str(path.parent))
    assert worker_python(recipe(python="python-of-mine")) == path  # type: ignore[arg-type]


@pytest.mark.known_failure("neuron-localhost")
def test_a_blocked_localhost_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    check_loopback()

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr("socket.create_connection", refused)
        with pytest.raises(ToolError, match=r"cannot talk over 127\.0\.0\.1: Operation not permitted") as caught:
            check_loopback()
    assert caught.value.problems[0].code == "localhost.blocked"
    assert "WSL" in (caught.value.problems[0].hint or "")


@pytest.mark.known_failure("neuron-localhost")
def test_a_connection_that_is_swallowed_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    listening = socket.create_server(("127.0.0.1", 0))
    elsewhere = listening.getsockname()
    real = socket.create_connection
    monkeypatch.setattr("socket.create_connection", lambda _, timeout: real(elsewhere, timeout=timeout))
    with listening, pytest.raises(ToolError, match="timed out"):
        check_loopback()
