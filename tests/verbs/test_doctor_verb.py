"""`etcli doctor`: what a target needs, and a target that cannot be built for."""

import pytest
from ndk_tree import make_ndk

from etcli.output.console import Console
from etcli.recipe.loader import load
from etcli.tables.ndk import ndk_facts
from etcli.verbs.doctor import doctor


@pytest.fixture
def no_ndk(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = ndk_facts()
    for name in (*facts.variables, *facts.sdk_variables, "EXECUTORCH_ROOT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_ndk")
def test_what_android_needs_and_lacks():
    found = doctor(load("smollm2-135m"), "android", None, Console(verbosity=-1))
    lacking = {need.name: need.problem.code for need in found.missing if need.problem is not None}
    assert lacking.items() >= {("Android NDK", "ndk.missing"), ("ExecuTorch for android", "executorch.not_provided")}
    by_name = {need.name: need for need in found.needs}
    assert by_name["build for Android"].version == "API level 26, c++_static"
    # The compiler is the NDK's, and a phone needs nothing of what the virtual device does.
    assert not {"C++ compiler for android", "bubblewrap", "qemu", "init"} & set(by_name)


@pytest.mark.usefixtures("no_ndk")
def test_an_ndk_that_will_do_and_one_that_is_wrong_in_two_ways(tmp_path, monkeypatch):
    old = make_ndk(tmp_path / "old", "26.3.11579264")
    monkeypatch.setenv("ANDROID_NDK_HOME", str(make_ndk(tmp_path / "new")))
    console = Console(verbosity=-1)
    needs = {need.name: need for need in doctor(load("smollm2-135m"), "android", None, console, old).needs}
    need = needs["Android NDK"]
    assert (need.status, need.version, need.where) == ("warning", "r26d (26.3.11579264), named by --ndk", str(old))
    assert "--ndk wins over $ANDROID_NDK_HOME" in (need.hint or "")
    assert "r28 or newer is recommended" in (need.hint or "")
    assert needs["C++ compiler for android"].status == "missing"  # an empty file
    (old / "source.properties").write_text("Pkg.Revision = 19.2.1\n")
    (old / "build/cmake/android.toolchain.cmake").unlink()
    found = doctor(load("smollm2-135m"), "android", None, console, old)
    assert {need.problem.code for need in found.missing if need.name == "Android NDK" and need.problem} == {
        "ndk.too_old",
        "ndk.layout",
    }


def test_a_target_that_can_be_built_for_names_its_compiler():
    found = doctor(load("smollm2-135m"), "host", None, Console(verbosity=-1))
    assert [need.status for need in found.needs if need.name == "C++ compiler for host"] == ["ok"]


def test_no_line_about_a_need_is_cut(capsys, monkeypatch):
    from etcli.cli import show

    monkeypatch.setenv("COLUMNS", "40")
    console = Console()
    found = doctor(load("smollm2-135m"), "host", None, console)
    show.needs(console, found)
    lines = capsys.readouterr().out.splitlines()
    for need in found.needs:
        assert not need.where or any(line.strip() == need.where for line in lines), need


def test_a_fault_of_an_operators_description_is_shown_at_its_file(tmp_path):
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "op.yaml").write_text("name: mine\nsource: [a.cpp]\n")
    console = Console(verbosity=-1)
    found = doctor(load("smollm2-135m", sets=[f"build.custom_ops=[{tmp_path}/ops]"]), "host", None, console)
    (need,) = [need for need in found.needs if need.name == "recipe"]
    assert need.where == str(tmp_path / "ops" / "op.yaml")
    assert "'source'" in need.version
