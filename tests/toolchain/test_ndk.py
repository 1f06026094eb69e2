"""Android's NDK: which of several is taken, and each way in which a folder is none, told before anything is compiled."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import samples
from ndk_tree import TRIPLE, make_ndk, write_revision

from etcli.common.errors import EtcliError, ExitCode, Problem
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.ndk import ndk_facts, release_name, revision_numbers
from etcli.tables.targets import load_targets
from etcli.toolchain import compilers
from etcli.toolchain.ndk import Ndk, find_ndk

ANDROID = load_targets()["android"]
VARIABLES = ("ANDROID_NDK", "ANDROID_NDK_HOME", "ANDROID_NDK_ROOT")


def recipe(folder: Path, ndk: str | None = None, **sections: object) -> LoadedRecipe:
    return samples.make_recipe(folder, build={"ndk": ndk} if ndk is not None else {}, **sections)


def found(folder: Path, flag: Path | None = None, ndk: str | None = None) -> Ndk:
    return find_ndk(recipe(folder, ndk), ANDROID, flag)


def refused(folder: Path, flag: Path | None = None, loaded: LoadedRecipe | None = None) -> dict[str, Problem]:
    with pytest.raises(EtcliError) as caught:
        find_ndk(loaded or recipe(folder), ANDROID, flag)
    assert caught.value.exit == ExitCode.ENVIRONMENT
    assert all(problem.hint for problem in caught.value.problems)
    return {problem.code: problem for problem in caught.value.problems}


def test_the_order_is_flag_recipe_variables_and_sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("flag", "recipe", *VARIABLES)
    for name in names:
        make_ndk(tmp_path / name)
    make_ndk(tmp_path / "sdk" / "ndk" / "28.1.1")
    monkeypatch.setenv("ANDROID_HOME", str(tmp_path / "sdk"))
    for name in VARIABLES:
        monkeypatch.setenv(name, str(tmp_path / name))
    every = found(tmp_path, tmp_path / "flag", "recipe")
    assert (every.root, every.said_by) == (tmp_path / "flag", "--ndk")
    assert [what for what, _ in every.overruled] == ["build.ndk", *(f"${name}" for name in VARIABLES)]
    assert any("--ndk wins over $ANDROID_NDK_HOME" in remark for remark in every.remarks())
    by_recipe = found(tmp_path, ndk="recipe")
    assert (by_recipe.root, by_recipe.said_by) == (tmp_path / "recipe", "build.ndk")
    for name in VARIABLES:
        assert found(tmp_path).said_by == f"${name}"
        monkeypatch.delenv(name)
    last = found(tmp_path)
    assert (last.root, last.said_by, last.overruled) == (tmp_path / "sdk/ndk/28.1.1", "$ANDROID_HOME/ndk", ())


def test_which_was_chosen_and_by_which_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, other = make_ndk(tmp_path / "first"), make_ndk(tmp_path / "other")
    monkeypatch.setenv("ANDROID_NDK_HOME", str(first))
    monkeypatch.setenv("ANDROID_NDK_ROOT", str(other))
    line = found(tmp_path).chosen().line
    assert (
        f" in {first}: named by $ANDROID_NDK_HOME, the first that is there of --ndk, build.ndk, $ANDROID_NDK, " in line
    )
    assert line.endswith(
        f"$ANDROID_HOME/ndk, $ANDROID_SDK_ROOT/ndk; $ANDROID_NDK_ROOT names {other}, which is not used"
    )


def test_two_names_of_one_folder_do_not_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_ndk(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv("ANDROID_NDK", str(tmp_path / "link"))
    monkeypatch.setenv("ANDROID_NDK_HOME", f"{tmp_path}/real/")
    ndk = found(tmp_path)
    assert ndk.root == tmp_path / "link"
    assert (ndk.overruled, list(ndk.remarks())) == ((), [])


def test_the_newest_of_an_sdk_is_taken_by_number_and_half_installed_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for revision in ("26.3.11579264", "27.0.12077973", "28.2.9", "28.2.13676358"):
        make_ndk(tmp_path / "ndk" / revision, revision)
    (tmp_path / "ndk" / "29.0.1").mkdir()
    monkeypatch.setenv("ANDROID_SDK_ROOT", str(tmp_path))
    assert found(tmp_path).revision == "28.2.13676358"


@pytest.mark.known_failure("android-ndk-relative-path")
def test_a_relative_folder_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    make_ndk(here / "ndk")
    monkeypatch.chdir(here)
    monkeypatch.setenv("ANDROID_NDK", "ndk")
    assert found(tmp_path).root == here / "ndk"  # the variable: where the user is
    assert found(here, ndk="ndk").root == here / "ndk"  # the recipe: where the recipe is
    assert found(tmp_path, Path("ndk")).toolchain_file == here / "ndk/build/cmake/android.toolchain.cmake"


def test_a_folder_has_one_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_ndk(tmp_path / "real" / "ndk")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "er")
    monkeypatch.chdir(tmp_path)
    for written in ("real/ndk", "deep/../real/ndk", "link/../../real/ndk"):  # another spelling would build from nothing
        assert found(tmp_path, Path(written)).root == tmp_path / "real" / "ndk"
        assert found(tmp_path, ndk=written).root == tmp_path / "real" / "ndk"


def test_the_home_of_a_stranger_is_a_folder_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANDROID_NDK", "~nobody-of-this-name/ndk")
    assert "$ANDROID_NDK: there is no folder" in str(refused(tmp_path)["ndk.not_found"])
    assert "--ndk: there is no folder" in str(refused(tmp_path, Path("~nobody-of-this-name"))["ndk.not_found"])


@pytest.mark.parametrize("inside", ["ndk", "."])
def test_a_folder_of_ndks_names_its_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str) -> None:
    for revision in ("9.0.1", "28.0.13004108"):
        make_ndk(tmp_path / "sdk" / inside / revision, revision)
    monkeypatch.setenv("ANDROID_NDK", str(tmp_path / "sdk"))
    assert f"name {tmp_path / 'sdk' / inside / '28.0.13004108'}." in refused(tmp_path)["ndk.revision"].hint


def test_a_compiler_of_an_ndk_that_does_not_start_is_the_ndk_s(tmp_path: Path) -> None:
    ndk = found(tmp_path, make_ndk(tmp_path / "ndk"))
    ndk.compiler.write_text("#!/bin/false\n")
    with pytest.raises(EtcliError) as caught:
        compilers.verify(ANDROID, ndk.compiler)
    [problem] = caught.value.problems
    assert problem.code == "compiler.broken"
    assert "Install the NDK again" in problem.hint


def test_none_named_lists_everything_that_was_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANDROID_NDK", "")
    problem = refused(tmp_path)["ndk.missing"]
    for name in (
        "--ndk",
        "build.ndk",
        *(f"${name}" for name in VARIABLES),
        "$ANDROID_HOME/ndk",
        "$ANDROID_SDK_ROOT/ndk",
    ):
        assert name in str(problem)
    assert "sdkmanager" in str(problem)


def test_a_named_folder_that_is_not_there_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_ndk(tmp_path / "good")
    monkeypatch.setenv("ANDROID_NDK", str(tmp_path / "nowhere"))
    monkeypatch.setenv("ANDROID_NDK_HOME", str(tmp_path / "good"))
    assert "$ANDROID_NDK: there is no folder" in str(refused(tmp_path)["ndk.not_found"])


@pytest.mark.parametrize(
    "absent",
    [
        "build/cmake/android.toolchain.cmake",
        "toolchains/llvm/prebuilt/{host}/bin/clang++",
        "toolchains/llvm/prebuilt/{host}/bin/llvm-strip",
        "toolchains/llvm/prebuilt/{host}/sysroot/usr/include",
        "toolchains/llvm/prebuilt/{host}/sysroot/usr/lib/aarch64-linux-android/libc++_shared.so",
    ],
)
@pytest.mark.known_failure("android-toolchain-file-missing")
def test_an_incomplete_ndk_is_told_with_what_it_lacks(tmp_path: Path, absent: str) -> None:
    root = make_ndk(tmp_path / "ndk")
    path = root / absent.format(host=next((root / "toolchains/llvm/prebuilt").iterdir()).name)
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    problem = refused(tmp_path, root)["ndk.layout"]
    assert str(path.relative_to(root)) in str(problem)


@pytest.mark.known_failure("android-missing-one-by-one")
def test_everything_that_is_wrong_with_an_ndk_is_told_at_once(tmp_path: Path) -> None:
    root = make_ndk(tmp_path / "ndk", "21.4.7075529")
    (root / "build/cmake/android.toolchain.cmake").unlink()
    assert set(refused(tmp_path, root)) == {"ndk.too_old", "ndk.layout"}


def test_an_ndk_of_another_system_is_told(tmp_path: Path) -> None:
    root = make_ndk(tmp_path / "ndk")
    prebuilt = root / "toolchains/llvm/prebuilt"
    next(prebuilt.iterdir()).rename(prebuilt / "windows-x86_64")
    assert "windows-x86_64" in str(refused(tmp_path, root)["ndk.host"])


def test_an_sdk_is_no_ndk_but_may_have_one(tmp_path: Path) -> None:
    inside = make_ndk(tmp_path / "sdk" / "ndk" / "28.2.1", "28.2.1")
    assert str(inside) in str(refused(tmp_path, tmp_path / "sdk")["ndk.revision"])
    (inside / "source.properties").write_text("Pkg.Desc = Android NDK\n")
    assert "has no Pkg.Revision" in str(refused(tmp_path, inside)["ndk.revision"])


def test_a_fault_of_the_recipes_ndk_stands_at_its_line(tmp_path: Path) -> None:
    from etcli.recipe.loader import load

    path = tmp_path / "r.yaml"
    path.write_text("name: a\nmodel: {source: x}\nbuild:\n  ndk: nowhere\n")
    problem = refused(tmp_path, loaded=load(str(path)))["ndk.not_found"]
    assert (problem.file, problem.line) == (path, 4)


@pytest.mark.parametrize(
    ("revision", "sections", "code"),
    [
        ("21.4.7075529", {}, "ndk.too_old"),
        ("24.0.8215888", {}, "ndk.too_old"),
        ("25.0.8775105", {}, None),
        ("25.2.9519653", {"run": {"runner": "mtk"}}, "ndk.too_old_for_vendor"),
        ("26.1.10909125", {"backend": "neuron"}, "ndk.too_old_for_vendor"),
        ("26.3.11579264", {"backend": "neuron"}, None),
        ("27.0.12077973-beta1", {}, None),
        ("29.0.13113456", {}, None),
    ],
)
@pytest.mark.known_failure("android-ndk-too-old")
def test_revisions(tmp_path: Path, revision: str, sections: dict[str, object], code: str | None) -> None:
    root = make_ndk(tmp_path / "ndk", revision)
    more: dict[str, object] = {"run": sections.get("run", {})}
    if "backend" in sections:
        more |= {"export": {"backend": "neuron", "precision": "A16W8"}, "neuron": {"platform": "mt6991", "sdk": "x"}}
    loaded = recipe(tmp_path, **more)
    if code is not None:
        assert set(refused(tmp_path, root, loaded)) == {code}
        return
    ndk = find_ndk(loaded, ANDROID, root)
    assert ndk.revision == revision
    assert any("recommended" in remark for remark in ndk.remarks()) == (revision_numbers(revision) < (28,))


def test_names_and_numbers_of_revisions() -> None:
    assert [release_name(text) for text in ("25", "26.3.11579264", "27.0.12077973-beta1", "28.2.13676358")] == [
        "r25",
        "r26d",
        "r27",
        "r28c",
    ]
    assert revision_numbers("27.0.12077973-beta1") == (27, 0, 12077973)
    assert revision_numbers("9.1") < revision_numbers("10.0")


@pytest.mark.parametrize(
    ("revision", "means"),
    [
        ("25.1.1", "linker_option"),
        ("26.3.1", "linker_option"),
        ("27.0.1", "flexible"),
        ("28.0.1", "default"),
        ("31.0.1", "default"),
    ],
)
def test_the_means_for_pages_of_16_kib_follow_the_revision(revision: str, means: str) -> None:
    assert ndk_facts().page_size_means(revision) == means


def test_api_levels_are_those_of_the_libraries(tmp_path: Path) -> None:
    ndk = found(tmp_path, make_ndk(tmp_path / "ndk", api_levels=(21, 26, 33)))
    assert ndk.api_levels == (21, 26, 33)
    ndk.check_api_level(26)
    with pytest.raises(EtcliError, match="no libraries for API level 35: it has 21 to 33") as caught:
        ndk.check_api_level(35)
    assert caught.value.problems[0].code == "ndk.api_level"
    assert ndk.triple == TRIPLE
    write_revision(ndk.root, "x")
    assert "ndk.revision" in refused(tmp_path, ndk.root)


def test_the_ndks_compiler_is_taken_whatever_it_builds_for_by_itself(tmp_path: Path) -> None:
    ndk = found(tmp_path, make_ndk(tmp_path / "ndk"))
    banner = "Android (9352603, based on r450784d1) clang version 14.0.7 (https://example.org/llvm-project 4c603efb0cca074e9238af8b4106c30add4418f6)"
    ndk.compiler.write_text(
        f'#!/bin/sh\ncase $1 in -dumpmachine) echo x86_64-unknown-linux-gnu;; *) echo "{banner}";; esac\n'
    )
    ndk.compiler.chmod(0o755)
    compiler = compilers.verify(ANDROID, ndk.compiler)
    assert (compiler.kind, compiler.version, compiler.triple) == ("clang", "14.0.7", TRIPLE)
    assert compiler.description == banner
