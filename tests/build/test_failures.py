"""Builds that fail: one message with the cause, and nothing left that could be taken for whole."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from etcli.build import inputs
from etcli.build.stage import BuildResult
from etcli.common.errors import BuildError, EtcliError, ExitCode, UsageError
from etcli.toolchain import programs
from etcli.toolchain.build_failures import compile_errors, configure_errors, remedy

Builder = Callable[..., BuildResult]


def test_a_compile_error_is_shown_with_its_place(builder: Builder, native: Path) -> None:
    folder = builder().folder
    source = native / "runner" / "kernels.cpp"
    good = source.read_text()
    source.write_text(good.replace("kernel.name_", "kernel.nom_"))
    with pytest.raises(BuildError) as caught:
        builder()
    [problem] = caught.value.problems
    assert problem.code == "build.compile"
    assert problem.exit_code == ExitCode.BUILD
    assert "kernels.cpp:6:" in problem.message
    assert "nom_" in problem.message
    assert problem.file == folder / "logs" / "build.log"
    assert "nom_" in problem.file.read_text()
    # The earlier stage does not pass for the result of the changed source.
    assert not (folder / "manifest.json").exists()
    source.write_text(good)
    assert builder().manifest is not None


def test_a_link_error_names_the_symbol(builder: Builder, native: Path) -> None:
    (native / "runner" / "shared.cpp").write_text(
        "const char* elsewhere();\nconst char* version() { return elsewhere(); }\n"
    )
    with pytest.raises(BuildError, match=r"undefined reference to `elsewhere\(\)'"):
        builder()


def test_a_failed_configuration_is_done_again_from_nothing(builder: Builder) -> None:
    folder = builder(dry_run=True).folder
    (folder / "cmake-build").mkdir(parents=True)
    (folder / "CMakeUserPresets.json").write_text("{")
    with pytest.raises(BuildError) as caught:
        builder(configure_only=True)
    assert caught.value.problems[0].code == "build.configure"
    assert "CMakeUserPresets.json" in str(caught.value)
    (folder / "CMakeUserPresets.json").unlink()
    assert builder(configure_only=True).plan[0].startswith("configure")


def test_a_configuration_that_was_cut_off_is_not_built_on(builder: Builder) -> None:
    folder = builder(configure_only=True).folder
    (folder / "cmake-build" / "etcli-configured.json").unlink()
    assert builder(dry_run=True).plan[0] == "remove the build tree: its configuration did not finish"


def test_a_bad_audit_leaves_no_stage(builder: Builder, native: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = inputs.render_project

    def with_host_path(*arguments: object, **options: bool) -> dict[str, str]:
        files = dict(real(*arguments, **options))  # type: ignore[arg-type]
        files["CMakeLists.txt"] = files["CMakeLists.txt"].replace("[[$ORIGIN]]", "/opt/here")
        return files

    monkeypatch.setattr(inputs, "render_project", with_host_path)
    with pytest.raises(EtcliError) as caught:
        builder()
    assert {problem.code for problem in caught.value.problems} == {"audit.run_path"}
    assert {problem.message.split()[0] for problem in caught.value.problems} == {
        "stage/list_kernels",
        "stage/list_backends",
    }
    folder = builder(dry_run=True).folder
    assert not (folder / "stage").exists()
    assert not (folder / "manifest.json").exists()
    assert not list(folder.glob(".stage.*"))


def test_an_interrupted_build_leaves_nothing_that_looks_whole(native: Path, tmp_path: Path) -> None:
    (native / "runner" / "kernels.cpp").write_text('#include "slow.h"\n#include "slow.h"\nint main() {}\n')
    # A FIFO holds the compiler for as long as the test wants.
    subprocess.run(["mkfifo", native / "runner" / "slow.h"], check=True)
    script = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from etcli.build import inputs, stage
        from etcli.common.workspace import Workspace
        from etcli.output.console import Console
        from etcli.recipe.loaded import LoadedRecipe
        from etcli.recipe.schema import Recipe
        home, native = Path(sys.argv[1]), Path(sys.argv[2])
        stage.asset_dir = {"native": native}.__getitem__
        inputs.read_sources.__globals__["_COMPILED"] = (".cpp",)
        document = {"name": "small", "model": {"source": "model.gguf"}}
        loaded = LoadedRecipe(Recipe.model_validate(document), home / "recipe.yaml", home, document)
        stage.build(loaded, Workspace(home / "ws", "small"), stage.BuildOptions("host"), Console(verbosity=-1))
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path, native], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    folder = tmp_path / "ws" / "small" / "build" / "host"
    log = folder / "logs" / "build.log"
    while process.poll() is None and not log.exists():
        time.sleep(0.05)
    time.sleep(1)
    assert process.poll() is None
    process.send_signal(2)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in stderr
    assert not (folder / "manifest.json").exists()
    assert not (folder / "stage").exists()
    assert not list(folder.glob(".stage.*"))
    # Nothing that was started goes on.
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(native) not in listed


def test_everything_missing_is_reported_at_once(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(name: str, path: str | None = None) -> None:
        return None

    monkeypatch.setattr(programs.shutil, "which", nowhere)
    with pytest.raises(EtcliError) as caught:
        builder("linux-aarch64")
    assert caught.value.exit == ExitCode.ENVIRONMENT
    found = {problem.code: problem.hint for problem in caught.value.problems}
    assert set(found) == {"compiler.missing", "ninja.missing", "cmake.missing"}
    assert "apt-get install -y g++-aarch64-linux-gnu" in (found["compiler.missing"] or "")


def test_a_target_that_is_none_is_a_usage_error(builder: Builder) -> None:
    with pytest.raises(UsageError) as caught:
        builder("hots")
    [problem] = caught.value.problems
    assert problem.code == "build.unknown_target"
    assert problem.hint is not None
    assert "linux-aarch64" in problem.hint


def test_offline_without_the_wheel_says_what_to_do(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("ETCLI_OFFLINE", "1")
    assert builder("linux-aarch64", dry_run=True).plan[0].startswith("fetch ExecuTorch for manylinux_2_28_aarch64")
    with pytest.raises(EtcliError) as caught:
        builder("linux-aarch64")
    assert caught.value.exit == ExitCode.ENVIRONMENT
    assert [problem.code for problem in caught.value.problems] == ["wheel.offline"]


def test_a_place_that_cannot_be_written_is_named(builder: Builder, tmp_path: Path) -> None:
    (tmp_path / "ws").write_text("a file, where the workspace should be")
    with pytest.raises(BuildError) as caught:
        builder(configure_only=True)
    [problem] = caught.value.problems
    assert problem.code == "build.files"
    assert str(tmp_path / "ws") in problem.message
    assert "--workspace" in (problem.hint or "")


def test_errors_are_cut_out_of_a_log() -> None:
    compiler = [
        "[1/3] Building CXX object a.o",
        "FAILED: a.o",
        "/usr/bin/g++ -c a.cpp",
        "a.cpp:3:1: error: 'x' does not name a type",
        "    3 | x",
        "a.cpp:9:2: warning: unused",
        "/usr/bin/ld: warning: x.o: missing .note.GNU-stack section",
        "a.cpp:3:1: error: 'x' does not name a type",
        "ninja: build stopped: subcommand failed.",
    ]
    assert compile_errors(compiler) == ["a.cpp:3:1: error: 'x' does not name a type"]
    cmake = [
        "-- The CXX compiler identification is GNU",
        "CMake Error at CMakeLists.txt:7 (find_package):",
        "  Could not find a package configuration file provided by",
        "",
        '  "executorch" with any of the following names:',
        "Call Stack (most recent call first):",
        "  x",
    ]
    assert configure_errors(cmake) == [
        "CMake Error at CMakeLists.txt:7 (find_package):",
        "Could not find a package configuration file provided by",
        '"executorch" with any of the following names:',
    ]
    assert compile_errors(["something odd", ""]) == ["something odd"]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("/tmp/cc.s: fatal error: error writing: No space left on device", "Free space"),
        ("g++: fatal error: Killed signal terminated program cc1plus", "--jobs 1"),
        ("a.cpp:1:1: internal compiler error: Segmentation fault", "--jobs 1"),
        ("ld: x.o: Relocations in generic ELF (EM: 183)", "--clean"),
        ("ld: skipping incompatible /x/libexecutorch.so when searching for -lexecutorch", "--clean"),
        (
            "x.cpp:1:10: fatal error: executorch/runtime/core/error.h: No such file or directory",
            "executorch/runtime/core/error.h",
        ),
        ("this ExecuTorch package does not provide the required component 'backend_cuda'.", "backend_cuda"),
        ("ld: cannot find -lomp: No such file or directory", "libomp"),
        ("a.cpp:1:1: error: expected unqualified-id", None),
    ],
)
def test_known_messages_have_remedies(line: str, word: str | None) -> None:
    found = remedy([line])
    assert (found is None) if word is None else (found is not None and word in found)
