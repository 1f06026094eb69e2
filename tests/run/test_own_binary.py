"""`run --runner-binary`: a program of the user's with the libraries beside it, and what upstream's exit statuses mean."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import samples
from deploy_scene import Scene
from local_device import LocalDevice
from mtk_bundles import make_mtk_bundle
from tokenizer_kinds import bpe_folder
from vendor_sdk import make_library

from etcli.common.errors import EtcliError, RunError, StaleError, ToolError
from etcli.common.workspace import Workspace
from etcli.deploy.clean import clean
from etcli.manifests.build import BuildManifest
from etcli.manifests.run_record import RunRecord
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.schema import Recipe
from etcli.run.binary import check_binary, place_binary
from etcli.run.runners.mtk_runner import MtkRunner
from etcli.run.stage import RunOptions, run
from etcli.tables.targets import known_target
from etcli.toolchain.elf import read_elf
from etcli.toolchain.neuropilot import device_libraries
from etcli.verbs.bench import BenchOptions, bench

COMPILER = shutil.which("cc") or "cc"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A recipe with `runner: mtk` whose build has no such program, deployed."""
    loaded = samples.make_recipe(tmp_path, run={"runner": "mtk", "prompt": "Hello", "chat": False, "max_new_tokens": 3})
    workspace = Workspace(tmp_path / "work", loaded.recipe.name)
    make_mtk_bundle(loaded, workspace, bpe_folder(tmp_path / "model"))
    samples.make_build(loaded, workspace)
    made = Scene(loaded, workspace, LocalDevice(tmp_path / "device"), Console(verbosity=-1))
    made.deploy()
    return made


def start(scene: Scene, binary: Path | None) -> RunRecord:
    return run(scene.loaded, scene.workspace, scene.device, RunOptions(runner_binary=binary), scene.console)


@pytest.fixture
def compiled(tmp_path: Path) -> Callable[[str], Path]:
    """Compiles a `main` where upstream's build leaves it, linked with a library where upstream's build leaves that."""

    def build(body: str) -> Path:
        folder, libraries = tmp_path / "out/examples/mediatek", tmp_path / "out/backends/mediatek"
        for path in (folder, libraries):
            path.mkdir(parents=True, exist_ok=True)
        (folder / "main.c").write_text(
            f"#include <stdio.h>\n#include <stdlib.h>\nint ids(void);\nint main(int argc, char **argv) {{ {body} }}\n"
        )
        (libraries / "ids.c").write_text("int ids(void) { return 300; }\n")
        library, program = libraries / "libneuron_backend.so", folder / "mtk_llama_executor_runner"
        subprocess.run([COMPILER, "-shared", "-fPIC", "-o", library, libraries / "ids.c"], check=True)
        subprocess.run([COMPILER, "-o", program, folder / "main.c", f"-L{libraries}", "-lneuron_backend"], check=True)
        (folder / "libneuron_buffer_allocator.so").write_bytes(library.read_bytes())
        return program

    return build


def ids_of(scene: Scene) -> str:
    from etcli.tokenizer.opening import open_tokenizer

    return ", ".join(map(str, open_tokenizer(scene.workspace.bundle / "tokenizer").encode("Hello")))


def test_a_library_is_no_runner(tmp_path: Path) -> None:
    library = tmp_path / "libneuronusdk_adapter.mtk.so"
    command = [COMPILER, "-shared", "-nostdlib", "-fPIC", f"-Wl,-soname,{library.name}", "-x", "c", "-o", library, "-"]
    subprocess.run(command, input="int x;", text=True, check=True, timeout=60)
    machine = read_elf(library).machine
    target = next(known_target(name) for name in ("host", "linux-aarch64") if known_target(name).machine == machine)
    with pytest.raises(EtcliError, match="is a shared library") as caught:
        check_binary(library, target)
    assert caught.value.problems[0].code == "run.binary_kind"


def test_no_runner_names_where_it_comes_from(scene: Scene) -> None:
    with pytest.raises(StaleError) as caught:
        start(scene, None)
    problem = caught.value.problems[0]
    assert problem.code == "deploy.no_runner"
    assert "--runner-binary PATH" in (problem.hint or "")


def test_a_binary_and_its_libraries_are_sent_once(scene: Scene, compiled: Callable[[str], Path]) -> None:
    answer = f"[Input Prompt Tokens]\\n{{{ids_of(scene)}}}\\n\\n[Real-time Response]\\nx\\n\\n[Generated Tokens]\\n{{5, %d, 2}}"
    binary = compiled(f'printf("{answer}\\n", ids() - 10); return 0;')
    sent = []
    for _ in range(2):
        scene.device.pushed.clear()
        record = start(scene, binary)
        sent.append([path.rpartition("/tiny/")[2] for path in scene.device.pushed])
    assert record.tokens == (5, 290, 2)
    assert record.stop_reason == "stop_id"
    assert (record.load_s, record.prefill_tokens_per_s, record.peak_memory_bytes) == (None, None, None)
    libraries = [f".etcli-runner-libs/{name}" for name in ("libneuron_backend.so", "libneuron_buffer_allocator.so")]
    assert sent == [[".etcli-prompt.txt", ".etcli-runner", *libraries], [".etcli-prompt.txt"]]
    # They are of runs, not of the deployment: another deploy lets them be, and `clean` takes them along.
    assert scene.deploy().current
    clean(scene.loaded, scene.device, scene.console)
    assert not scene.folder.exists()


@pytest.mark.known_failure("mtk-libraries-opened-by-name")
def test_the_vendors_libraries_come_from_the_sdk(
    scene: Scene, compiled: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter, foreign = "libneuronusdk_adapter.mtk.so", tmp_path / "foreign"
    make_library(tmp_path / "sdk" / adapter, ["NeuronModel_create"], compiler=COMPILER)
    document = {
        **scene.loaded.document,
        "export": {"backend": "neuron", "precision": "A16W4"},
        "neuron": {"platform": "mt6991", "sdk": "sdk"},
    }
    loaded = LoadedRecipe(
        recipe=Recipe.model_validate(document), path=scene.loaded.path, base=tmp_path, document=document
    )
    monkeypatch.delenv("NEURON_USDK_ADAPTER_LIB", raising=False)
    monkeypatch.setenv("NEURON_BUFFER_ALLOCATOR_LIB", str(foreign))
    with pytest.raises(ToolError, match="NEURON_BUFFER_ALLOCATOR_LIB: there is no"):
        device_libraries(loaded)
    monkeypatch.delenv("NEURON_BUFFER_ALLOCATOR_LIB")
    found = device_libraries(loaded)
    assert found == [tmp_path / "sdk" / adapter]
    assert device_libraries(scene.loaded) == []
    binary, build = compiled("return ids();"), scene.workspace.build("host")
    manifest = BuildManifest.read(build / "manifest.json")
    opens = MtkRunner().opens
    folder = scene.loaded.recipe.device_dir
    assert (
        place_binary(scene.device, folder, binary, manifest, opens, found).libraries == f"{folder}/.etcli-runner-libs"
    )
    assert sorted(path.name for path in (scene.folder / ".etcli-runner-libs").iterdir()) == [
        "libneuron_backend.so",
        "libneuron_buffer_allocator.so",
        adapter,
    ]


@pytest.mark.known_failure("mtk-exit-status-zero")
@pytest.mark.known_failure("mtk-runner-of-another-release")
@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("return 0 * ids();", "run.no_result", "cannot load the tokenizer"),
        ("return ids() - 299;", "run.failed", "knows a flag or a value not"),
        ("abort();", "run.sigabrt", "A check of this runner failed"),
        ("return argc / (ids() - 300);", "run.sigfpe", "divided by zero"),
        (
            "*(volatile int *)(long)(ids() - 300) = 1;",
            "run.sigsegv",
            "libneuron_buffer_allocator.so is not where it looks",
        ),
    ],
)
def test_exit_statuses_are_explained(
    scene: Scene, compiled: Callable[[str], Path], body: str, code: str, words: str
) -> None:
    with pytest.raises(RunError) as caught:
        start(scene, compiled(body))
    problem = caught.value.problems[0]
    assert problem.code == code
    assert words in (problem.hint or "")
    assert problem.exit_code == 9


def test_a_benchmark_measures_the_same_program(scene: Scene, compiled: Callable[[str], Path]) -> None:
    with pytest.raises(RunError, match="exit status 44"):
        bench(
            scene.loaded,
            scene.workspace,
            scene.device,
            BenchOptions(runs=1, runner_binary=compiled("return ids();")),
            scene.console,
        )


def test_remarks_are_made_once_however_often_it_runs(scene: Scene, compiled: Callable[[str], Path]) -> None:
    options = RunOptions(runner_binary=compiled("return ids();"), ignore_stop_ids=True, stream=False)
    for _ in range(2):
        with pytest.raises(RunError):
            run(scene.loaded, scene.workspace, scene.device, options, scene.console)
    codes = [warning.code for warning in scene.console.warnings]
    assert codes.count("mtk.ignore_stop_ids") == 1


def test_messages_of_the_runner_are_in_the_error(scene: Scene, compiled: Callable[[str], Path]) -> None:
    line = "F 00:00:00.010000 executorch:ModelChunk.cpp:72] In function CheckIoCount(), assert failed: 15 inputs"
    with pytest.raises(RunError, match="15 inputs"):
        start(scene, compiled(f'fprintf(stderr, "{line}\\n"); abort();'))
    assert not list(scene.folder.glob(".etcli-prompt*"))
