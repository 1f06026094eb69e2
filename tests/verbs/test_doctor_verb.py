"""`etcli doctor`: what a target needs, and a target that cannot be built for."""

from etcli.output.console import Console
from etcli.recipe.loader import load
from etcli.verbs.doctor import doctor


def test_a_target_that_cannot_be_built_for_yet_is_said_to_be_one():
    found = doctor(load("smollm2-135m"), "android", None, Console(verbosity=-1))
    (need,) = [need for need in found.missing if "android" in need.name]
    assert need.problem is not None
    assert need.problem.code == "build.unsupported_target"
    assert "compiler" not in " ".join(need.name for need in found.needs)


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
