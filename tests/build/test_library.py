"""build --library: what an app takes in, used by an app in C and by one on a Java virtual machine, each against transformers' own tokens."""

from __future__ import annotations

import os
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

import pytest
from tiny_bundle import CACHE, VOCABULARY, BundleSpec, TinyBundle, shared_bundle

from etcli.build.apps import LIBRARY, export_problems, is_whole
from etcli.build.stage import BuildOptions, BuildResult, build
from etcli.common.assets import asset_dir
from etcli.common.workspace import Workspace
from etcli.manifests.build import BuildManifest
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.schema import Recipe
from etcli.tables.app_library import read_app_libraries

pytestmark = pytest.mark.early

REPOSITORY = Path(__file__).parents[2]
JAVA = REPOSITORY / "tests" / "support" / "java"
EXAMPLE = REPOSITORY / "examples" / "android"
PROMPT, MORE = [5, 6, 7, 9, 11], [3, 4, 5]


def recipe(folder: Path) -> LoadedRecipe:
    document = {"name": "small", "model": {"source": "model.gguf"}}
    return LoadedRecipe(Recipe.model_validate(document), folder / "recipe.yaml", folder, document)


def built(folder: Path, **options: bool) -> BuildResult:
    chosen = BuildOptions("host", **options)
    return build(recipe(folder), Workspace(folder / "ws", "small"), chosen, Console(verbosity=-1))


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> BuildResult:
    return built(tmp_path_factory.mktemp("app"), library=True)


@pytest.fixture(scope="module")
def library(result: BuildResult) -> Path:
    return result.folder / LIBRARY


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> TinyBundle:
    return shared_bundle(tmp_path_factory, BundleSpec(cache="ring", shapes=(12, 8, 3)))


def output(*command: str | Path, **environment: str) -> list[str]:
    """The lines of a program that has to succeed and to say nothing on stderr."""
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "LC_ALL": "C.UTF-8", **environment},
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout.splitlines()


def ids(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


def test_the_folder_holds_what_an_app_takes_in(result: BuildResult, library: Path) -> None:
    manifest = result.manifest
    assert manifest is not None
    assert manifest.library is not None
    assert BuildManifest.read(result.folder / "manifest.json") == manifest
    assert manifest.library.api == 2
    names = {file.path for file in manifest.library.files}
    assert names == {path.relative_to(library).as_posix() for path in library.rglob("*") if path.is_file()}
    assert {
        "include/etcli_runner.h",
        "java/org/etcli/runner/Runner.java",
        "java/org/etcli/runner/RunnerException.java",
        "consumer-rules.pro",
    } < names
    # Programs stay out, and everything that the libraries need is beside them.
    reasons = {file.path: file.reason for file in manifest.stage}
    programs = {name for name, reason in reasons.items() if reason == "program"}
    in_library = {name.rpartition("/")[2] for name in names if name.startswith("jniLibs/x86_64/")}
    assert in_library == reasons.keys() - programs
    assert reasons["libetcli_runner.so"] == reasons["libetcli_runner_jni.so"] == "library for apps"
    assert is_whole(result.folder, manifest)


def test_nothing_is_done_twice_and_both_ways_share_a_tree(result: BuildResult, library: Path) -> None:
    folder = result.folder.parents[2].parent
    assert built(folder, library=True).current
    header = library / "include" / "etcli_runner.h"
    whole = header.read_bytes()
    header.write_bytes(whole + b"\n")
    assert not built(folder, library=True, dry_run=True).current
    header.write_bytes(whole)
    plan = built(folder, dry_run=True).plan
    assert plan[0].startswith("configure: CMakeLists.txt")
    assert not any("remove" in step for step in plan)


def test_the_libraries_show_their_interface_alone(result: BuildResult, tmp_path: Path) -> None:
    libraries = read_app_libraries(asset_dir("native"))
    assert export_problems(result.folder / "stage", libraries) == []
    source = tmp_path / "other.c"
    source.write_text("void etcli_runner_load(void) {} void JNI_OnLoad(void) {} void secret(void) {}")
    for library in libraries.all:
        subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", tmp_path / library.file], check=True)
    found = export_problems(tmp_path, libraries)
    assert {problem.code for problem in found} == {"audit.exports"}
    words = [problem.message for problem in found]
    assert any("libetcli_runner.so shows JNI_OnLoad, secret" in text for text in words)
    assert any("libetcli_runner.so does not show etcli_runner_api, " in text for text in words)
    assert any("libetcli_runner_jni.so shows etcli_runner_load, secret" in text for text in words)


@pytest.mark.parametrize("standard", ["c99", "c17"])
def test_an_app_in_c(library: Path, bundle: TinyBundle, tmp_path: Path, standard: str) -> None:
    """Compiled with nothing but the folder, and run without the build's own."""
    client = tmp_path / "client"
    libraries = library / "jniLibs" / "x86_64"
    flags = [f"-std={standard}", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"]
    source = asset_dir("native") / "capi" / "tests" / "client.c"
    link = [f"-L{libraries}", "-letcli_runner", f"-Wl,-rpath,{libraries}", f"-Wl,-rpath-link,{libraries}"]
    output("gcc", *flags, source, f"-I{library / 'include'}", *link, "-o", client)
    lines = output(client, bundle.config, "1", f"prefill:{ids(PROMPT)}", "decode:6")
    assert [int(line.split()[2]) for line in lines if line.startswith("token")] == bundle.greedy(PROMPT, 6)


def test_the_header_is_c_plus_plus_too(library: Path, tmp_path: Path) -> None:
    source = tmp_path / "app.cpp"
    source.write_text(
        '#include "etcli_runner.h"\n'
        "int main() { etcli_runner_load_options a = ETCLI_RUNNER_LOAD_OPTIONS_INIT; etcli_runner_info b = ETCLI_RUNNER_INFO_INIT; "
        "return int(a.size == 0 || b.size == 0); }\n"
    )
    output(
        "g++",
        "-std=c++11",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        f"-I{library / 'include'}",
        "-c",
        source,
        "-o",
        tmp_path / "o",
    )


def compiled(library: Path, classes: Path, *more: Path) -> Path:
    """The binding's classes and `more`, compiled for the oldest Java that Android apps are compiled for."""
    sources = [*(library / "java").rglob("*.java"), *more]
    output("javac", "--release", "8", "-Xlint:all,-options", "-Werror", "-d", classes, *sources)
    return classes


def java(library: Path, classes: Path, *words: str | Path) -> list[str]:
    path = f"-Djava.library.path={library / 'jniLibs' / 'x86_64'}"
    return output("java", "-Xcheck:jni", "-Xmx256m", "-Dfile.encoding=UTF-8", path, "-cp", classes, *words)


def runner_tokens(result: BuildResult, bundle: TinyBundle, *flags: str) -> list[str]:
    """What the program of the same build says to PROMPT."""
    runner = result.folder / "stage" / "etcli_llama_runner"
    events = output(runner, "--config", bundle.config, "--prompt-ids", ids(PROMPT), *flags)
    return [event.partition('"id": ')[2].partition(",")[0] for event in events if '"event": "token"' in event]


def test_an_app_on_a_java_virtual_machine(
    result: BuildResult, library: Path, bundle: TinyBundle, tmp_path: Path
) -> None:
    classes = compiled(library, tmp_path / "classes", JAVA / "RunnerCheck.java")
    lines = java(library, classes, "RunnerCheck", bundle.config, ids(PROMPT), ids(MORE), "11")
    assert not [line for line in lines if "WARNING" in line or "FATAL" in line], lines  # of -Xcheck:jni
    said = dict(line.split(" ", 1) for line in lines)

    tokens = runner_tokens(result, bundle, "--max-new-tokens", "6")
    assert tokens == [str(token) for token in bundle.greedy(PROMPT, 6)]
    turn = bundle.greedy([*PROMPT, *bundle.greedy(PROMPT, 6), *MORE], 3)

    def words(values: Sequence[object]) -> str:
        return " ".join(map(str, values))

    whole = bundle.greedy(PROMPT, 7)
    assert said["first"] == f"MAX_NEW_TOKENS {words(tokens[:3])}"
    assert said["next"] == f"MAX_NEW_TOKENS {words(tokens[3:])}"
    assert said["turn"] == f"MAX_NEW_TOKENS {words(turn)}"
    assert said["stats"] == f"{len(PROMPT)} 6 5 true"
    assert said["info"] == f"{VOCABULARY} {CACHE} {CACHE - len(PROMPT) - 6 - len(MORE) - 3} 1"
    # Drawn as the runner draws with these settings, and greedy again where they are not given.
    sampling = ("--temperature", "0.8", "--top-p", "0.9", "--seed", "11", "--ignore-stop-ids")
    drawn = runner_tokens(result, bundle, "--max-new-tokens", "7", *sampling)
    assert said["drawn"] == f"MAX_NEW_TOKENS {words(drawn[:2])}"
    assert said["drawn-next"] == f"MAX_NEW_TOKENS {words(drawn[2:])}"
    assert said["greedy"] == f"MAX_NEW_TOKENS {words(bundle.greedy([*PROMPT, *map(int, drawn)], 1))}"
    assert said["temperature"] == "runner.usage temperature is -1, 0 to 1000 are possible"
    assert said["top-p"] == "runner.usage top_p is nan, 0 to 1 are possible"
    assert said["options"] == "NullPointerException options"
    # Ended by the listener, by another thread, by an exception of the listener's; and gone on with each time.
    assert said["enough"] == f"STOPPED {words(whole[:2])}"
    assert said["stopped"] == f"STOPPED {words(whole[2:3])}"
    assert said["thrown"] == "UnsupportedOperationException by the listener"
    assert said["after"] == f"MAX_NEW_TOKENS {words(whole[4:6])}"
    assert said["inside"] == f"MAX_NEW_TOKENS {words(whole[6:])}"
    assert said["closed"] == "STOPPED"
    # Failures are exceptions with the runner's codes, and messages of any letters.
    assert said["load"].startswith("runner.file ")
    assert "runner.cfg/nothing-\u00e9\U0001f600: Not a directory" in said["load"]
    codes = {name: said[name].split(" ")[0] for name in ("decode-first", "threads", "ids", "inside-decode")}
    assert codes == {
        "decode-first": "runner.prompt",
        "threads": "runner.usage",
        "ids": "runner.prompt",
        "inside-decode": "runner.busy",
    }
    assert said["null"].startswith("NullPointerException")
    assert said["nul"].startswith("IllegalArgumentException")
    assert said["inside-close"].startswith("IllegalStateException close() inside a listener")
    assert said["after-close"] == "IllegalStateException this runner is closed"


def test_the_example_app(library: Path, bundle: TinyBundle, tmp_path: Path) -> None:
    """Its activity compiles (against stand-ins of Android's classes), and its conversation says what transformers says over two turns."""
    sources = [*(EXAMPLE / "app/src/main/java").rglob("*.java"), *(JAVA / "android_standin").rglob("*.java")]
    classes = compiled(library, tmp_path / "classes", *sources, JAVA / "ConversationCheck.java")
    check = "com.example.etcli.ConversationCheck"
    lines = java(library, classes, check, bundle.config, ids(PROMPT), ids(MORE))
    first = bundle.greedy(PROMPT, 3)
    turns = [*first, *bundle.greedy([*PROMPT, *first, *MORE], 3)]
    assert [int(line.split()[1]) for line in lines if line.startswith("token ")] == turns
    assert sum(line.startswith("end MAX_NEW_TOKENS: 3 tokens, ") for line in lines) == 2
    failed = java(library, classes, check, tmp_path / "absent.cfg", "1")
    assert failed == [f"failure cannot open {tmp_path}/absent.cfg: No such file or directory"]


def test_the_example_names_the_parts_of_a_build(library: Path) -> None:
    gradle = (EXAMPLE / "app/build.gradle.kts").read_text()
    for part in ("jniLibs", "java", "consumer-rules.pro"):
        assert f'File(etcliLibrary, "{part}")' in gradle
        assert (library / part).exists()
    manifest = ElementTree.parse(EXAMPLE / "app/src/main/AndroidManifest.xml").getroot()
    (activity,) = manifest.iter("activity")
    name = activity.get("{http://schemas.android.com/apk/res/android}name")
    assert (EXAMPLE / f"app/src/main/java/com/example/etcli{str(name).replace('.', '/')}.java").is_file()
