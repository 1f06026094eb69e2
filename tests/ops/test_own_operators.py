"""`python -m etcli.ops` and what it stands on: a folder of the user's own, compiled and loaded in Python, faults told at their place."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from operator_folders import TWICE, write_operators

from etcli.common.errors import ToolError, UsageError
from etcli.ops.__main__ import main
from etcli.ops.own import own_library
from etcli.toolchain.registrations import read_registrations


@pytest.fixture
def shout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An operator library, and an empty cache."""
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "cache"))
    return write_operators(tmp_path / "ops")


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_path_alone_is_printed(shout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(shout)]) == 0
    first = capsys.readouterr()
    assert "compiling shout_ops" in first.err
    path = Path(first.out.strip())
    assert first.out == f"{path}\n"
    assert path.name == "libshout_ops.so"
    assert read_registrations(path).operators == ("shout::twice.out",)
    assert main([str(shout)]) == 0
    assert capsys.readouterr() == (f"{path}\n", "")
    with Path("/dev/full").open("w") as full:
        argv = [sys.executable, "-m", "etcli.ops", shout]
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "error: the path cannot be written: No space left on device\n")


def test_a_fault_of_the_source(shout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shout / "twice.cpp").write_text(TWICE.replace("2 * x", "fator * x"))
    assert main([str(shout)]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert f"error: {shout / 'twice.cpp'}:5:" in said.err
    assert "fator" in said.err
    with pytest.raises(ToolError) as caught:
        own_library(shout)
    [problem] = caught.value.problems
    assert (problem.code, problem.file, problem.line) == ("operators.compile", shout / "twice.cpp", 5)


def test_a_fault_of_the_description(shout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shout / "op.yaml").write_text((shout / "op.yaml").read_text() + "sauces: []\n")
    assert main([str(shout)]) == 2
    assert (
        f"error: {shout / 'op.yaml'}:5:1: unknown key 'sauces'\n       Did you mean 'sources'?"
        in capsys.readouterr().err
    )
    assert main([str(tmp_path / "none")]) == 2
    assert f"there is no folder {tmp_path / 'none'}" in capsys.readouterr().err


def test_a_name_that_is_not_the_schemas(shout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shout / "twice.cpp").write_text(TWICE.replace("twice.out", "thrice.out"))
    assert main([str(shout)]) == 3
    said = capsys.readouterr().err
    assert "registers shout::thrice.out" in said
    assert "shout::twice.out" in said


def test_what_does_not_link(shout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shout / "twice.cpp").write_text("float factor();\n" + TWICE.replace("2 * x", "factor() * x"))
    assert main([str(shout)]) == 3
    said = capsys.readouterr().err
    assert f"error: {shout / 'op.yaml'}: shout_ops does not link:\n    undefined reference to `factor()'\n" in said
    assert "List the source that has it under sources:" in said


@pytest.mark.known_failure("operators-registered-twice")
def test_what_would_end_the_process_is_tried_in_another(shout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shout / "twice.cpp").write_text(TWICE + 'EXECUTORCH_LIBRARY(shout, "twice.out", twice);\n')
    for _ in range(2):  # nothing is kept that a second call could take for good
        assert main([str(shout)]) == 3
        said = capsys.readouterr().err
        assert "shout_ops cannot be used: the process that loads it ends: killed by SIGABRT" in said
        assert "Re-registering shout::twice.out" in said


def test_without_a_compiler(shout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CXX", str(shout / "g++"))
    assert main([str(shout)]) == 3
    said = capsys.readouterr().err
    assert f"{shout / 'g++'} is not on PATH" in said
    assert "apt-get install -y g++. A build for a device needs none of this" in said


def test_a_folder_that_cmake_cannot_take(shout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(shout.rename(tmp_path / "a;b"))]) == 2
    assert "the path has ; in it" in capsys.readouterr().err


def test_names_of_others_are_refused_here_too(shout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_operators(shout, name="executorch", namespace="aten", operators=("twice.out", "twice.out"))
    assert main([str(shout)]) == 2
    said = capsys.readouterr().err
    assert said.count("error: ") == 3
    assert f"{shout / 'op.yaml'}:1:1: the name executorch is that of a library of ExecuTorch" in said


def test_a_header_that_cannot_be_read(shout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shout / "shout.h").symlink_to("/proc/self/mem")  # for nobody, root neither
    assert main([str(shout)]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_an_interruption_is_no_traceback(shout: Path) -> None:
    argv = [sys.executable, "-m", "etcli.ops", str(shout)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "compiling" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=60)
    assert (process.returncode, out, said) == (130, "", "")
    assert not list(shout.parent.glob("cache/ops/.building.*"))


def test_without_a_binding_to_pytorch(shout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(shout), "--torch"]) == 7
    assert "torch:" in capsys.readouterr().err


def test_the_schemas_for_export(shout: Path) -> None:
    done = python(
        "import torch\nfrom etcli.ops.own import define_own\n"
        "print(define_own('ops'), define_own('ops'))\n"
        "print(torch.ops.shout.twice.default._schema)\nprint(torch.ops.shout.twice.out._schema)\n",
        shout.parent,
    )
    assert done.stdout.splitlines() == [
        "('shout::twice',) ('shout::twice',)",
        "shout::twice(Tensor x) -> Tensor",
        "shout::twice.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)",
    ], done.stderr


def test_schemas_that_the_user_defined_are_left_alone(shout: Path) -> None:
    done = python(
        "import torch\n"
        "@torch.library.custom_op('shout::twice', mutates_args=())\n"
        "def twice(x: torch.Tensor) -> torch.Tensor:\n    return 2 * x\n"
        "from etcli.ops.own import define_own\ndefine_own('ops')\n"
        "print(torch.ops.shout.twice(torch.ones(1)).item(), torch.ops.shout.twice.out._schema.overload_name)\n",
        shout.parent,
    )
    assert done.stdout == "2.0 out\n", done.stderr


def test_a_schema_that_pytorch_does_not_take(shout: Path) -> None:
    (shout / "op.yaml").write_text((shout / "op.yaml").read_text().replace("(Tensor x,", "(Tenser x,"))
    code = (
        "from etcli.ops.own import define_own\nfrom etcli.common.errors import UsageError\n"
        "try:\n    define_own('ops')\nexcept UsageError as error:\n    print(error.problems[0].code, error)\n"
    )
    done = python(code, shout.parent)
    assert done.stdout.startswith("operators.schema PyTorch does not take the schema twice(Tenser x) -> Tensor: "), (
        done.stderr
    )


def test_it_imports_neither_torch_nor_executorch(shout: Path) -> None:
    own_library(shout)
    done = python(
        "import sys\nfrom etcli.ops.__main__ import main\nmain(['ops'])\nprint({'torch', 'executorch'} & set(sys.modules))",
        shout.parent,
    )
    assert done.stdout.splitlines()[-1] == "set()", done.stderr


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        own_library(tmp_path / "none")
