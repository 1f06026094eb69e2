"""The recipe's `neuron` section: platforms by any of their names, compile specs, calibration, and what does not go with the NPU."""

from __future__ import annotations

import os

import pytest

from etcli.common.errors import ExitCode, RecipeError
from etcli.recipe.checks import PRECISIONS
from etcli.recipe.fingerprint import build_fingerprint, cache_kind
from etcli.recipe.loader import load
from etcli.recipe.neuron import neuron_problems

HEAD = "name: a\nmodel: {source: x}\n"


def text(neuron: str = "", export: str = "", rest: str = "") -> str:
    return (
        f"{HEAD}export: {{backend: neuron, precision: A16W8{export}}}\n"
        f"neuron: {{platform: mt6991, sdk: simulator{neuron}}}\n{rest}"
    )


@pytest.mark.parametrize("name", ["mt6989", "MT6991", "DX3", "dx4", "Dimensity 9400", "dimensity 9500", "d9300"])
def test_a_platform_is_an_id_an_alias_or_a_marketing_name(write, name):
    recipe = load(str(write(text().replace("mt6991", f"'{name}'")))).recipe
    assert recipe.neuron is not None
    assert recipe.neuron.platform == name
    assert cache_kind(recipe) == "shift"


@pytest.mark.known_failure("neuron-unsupported-soc")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mt6981", "Did you mean mt6991?"),
        ("Dimensty 9400", "Did you mean Dimensity 9400?"),
        ("Dimensity 9400+", "a variant of mt6991 (Dimensity 9400)"),
        ("MT6989Z", "a variant of mt6989 (Dimensity 9300)"),
        ("MT8792", "compiles nothing for mt6897 (Dimensity 8300, not validated)"),
        ("dimensity-9000", "compiles nothing for mt6983"),
        ("snapdragon", "mt6993 (Dimensity 9500, not validated)"),
    ],
)
def test_another_platform_is_refused_with_what_there_is(problems_of, name, said):
    (problem,) = problems_of(text().replace("mt6991", f"'{name}'"))
    assert problem.code == "recipe.conflict"
    assert name in problem.message
    assert said in problem.hint


@pytest.mark.parametrize(("backend", "precisions"), PRECISIONS.items())
def test_precisions_both_ways(problems_of, write, backend, precisions):
    every = sorted({name for names in PRECISIONS.values() for name in names})
    neuron = "neuron: {platform: mt6991, sdk: simulator}\n" if backend == "neuron" else ""
    for precision in every:
        recipe = f"{HEAD}export: {{backend: {backend}, precision: {precision}}}\n{neuron}"
        if precision in precisions:
            load(str(write(recipe)))
            continue
        problems = problems_of(recipe)
        assert [problem.code for problem in problems] == ["recipe.conflict"], precision
        assert f"backend {backend} has no precision {precision}" in problems[0].message


@pytest.mark.parametrize(
    ("export", "said"),
    [
        ("cache: ring", "backend neuron shifts its caches"),
        ("head: fp32", "backend neuron has no output layer of fp32"),
        ("group_size: 32", "nothing is quantised in groups"),
        ("embedding: int8", "takes an embedding of fp32, not int8"),
        ("embedding: fp16", "takes an embedding of fp32, not fp16"),
    ],
)
def test_what_does_not_go_with_the_npu(problems_of, export, said):
    (problem,) = problems_of(text(export=f", {export}"))
    assert problem.code == "recipe.conflict"
    assert said in problem.message
    assert problem.hint


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ("[1t512c]", "a prompt shape is missing"),
        ("[600t512c, 1t512c]", "more tokens per call (600) than the cache holds (512)"),
        ("[32t512c, 1t256c]", "the same cache length"),
    ],
)
def test_shapes_that_runners_would_not_survive(problems_of, shapes, said):
    (problem,) = problems_of(text(export=f", shapes: {shapes}"))
    assert said in problem.message


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        ("{platform-config: mt6993}", "it follows from neuron.platform"),
        ("{ExtractSharedBlobKey: mine}", "it follows from the chunk"),
        ("{opt: '3'}", "ExecuTorch gives it always, as 3"),
        ("{relax-fp32: ''}", "ExecuTorch gives it always"),
        ("{dla-opt: '0'}", "with shared weights"),
        ("{--opt: '2'}", "ExecuTorch gives it always, as 3"),
        ("{GNO: LTS}", "is written gno"),
        ("{highaddr: '1'}", "is written HighAddr"),
        ("{--gno-exp: ''}", "is written gno-exp"),
        ("{--mine: ''}", "is no name of an option"),
        ("{'a b': ''}", "is no name of an option"),
        ("{'': x}", "is no name of an option"),
        ("{ImportForever: 'true'}", "switched by"),
        ("{gno: LTS --opt=0}", "is not one word"),
        ('{gno: "a\\nb"}', "is not one word"),
        ("{gno: '\"'}", "is not one word"),
    ],
)
def test_compile_specs_that_are_not_for_a_recipe(problems_of, specs, said):
    (problem,) = problems_of(text(neuron=f", compile_specs: {specs}"))
    assert problem.code == "recipe.conflict"
    assert said in problem.message
    assert problem.line == 4
    assert problem.hint


def test_compile_specs_given_twice_are_a_duplicate_key(problems_of):
    (problem,) = problems_of(text(neuron=", compile_specs: {gno: LTS, gno: EXP}"))
    assert problem.code == "recipe.duplicate_key"


def test_additions_and_other_values_of_the_defaults_are_allowed(write):
    specs = "{mine: '7', gno: EXP, HighAddr: '1', ImportForever: '0', gno-exp: ''}"
    recipe = load(str(write(text(neuron=f", compile_specs: {specs}")))).recipe
    assert recipe.neuron is not None
    assert recipe.neuron.compile_specs["mine"] == "7"


@pytest.mark.parametrize(
    ("calibration", "said"),
    [
        ("{file: a, prompts: [b]}", "given twice, as file (a) and as prompts (1)"),
        ("{response_cap: 3}", "either file or prompts"),
        ("{prompts: []}", "there is no prompt in the list"),
        ("{prompts: [a, '  ']}", "the prompt is empty"),
    ],
)
def test_calibration_that_contradicts(problems_of, calibration, said):
    (problem,) = problems_of(text(neuron=f", calibration: {calibration}"))
    assert said in problem.message


def test_a_calibration_of_the_command_line_beside_that_of_the_recipe(write):
    """The message names both and how to drop the recipe's, which then works."""
    path = str(write(text(neuron=", calibration: {prompts: [a, b]}")))
    given = "neuron.calibration={file: words.txt}"
    with pytest.raises(RecipeError) as caught:
        load(path, [given])
    (problem,) = caught.value.problems
    assert "file (words.txt) and as prompts (2)" in problem.message
    assert problem.line == 4
    assert problem.hint is not None
    recipe = load(path, [given, problem.hint.rpartition("--set ")[2]]).recipe
    assert recipe.neuron is not None
    assert recipe.neuron.calibration is not None
    assert (recipe.neuron.calibration.file, recipe.neuron.calibration.prompts) == ("words.txt", None)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no file"),
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"\xff\xfe", "is not UTF-8"),
        ("folder", "is no file"),
    ],
)
def test_a_calibration_file_that_cannot_be_used(write, tmp_path, content, said):
    path = tmp_path / "prompts.txt"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    (problem,) = neuron_problems(load(str(write(text(neuron=", calibration: {file: prompts.txt}")))))
    assert (problem.code, problem.exit_code, problem.line) == ("recipe.calibration", ExitCode.USAGE, 4)
    assert said in problem.message


def test_a_calibration_file_that_can(write, tmp_path):
    (tmp_path / "prompts.txt").write_text("What is the capital of Japan?\n", encoding="utf-8")
    assert neuron_problems(load(str(write(text(neuron=", calibration: {file: prompts.txt}"))))) == ()
    assert neuron_problems(load(str(write(text())))) == ()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_calibration_file_that_may_not_be_read(write, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("x")
    path.chmod(0)
    (problem,) = neuron_problems(load(str(write(text(neuron=", calibration: {file: prompts.txt}")))))
    assert "cannot be read" in problem.message


def test_an_interpreter_is_for_the_vendors_tools_alone(problems_of, write):
    load(str(write(text(export=", python: .venv/bin/python"))))
    (problem,) = problems_of(f"{HEAD}export: {{python: .venv/bin/python}}\n")
    assert (problem.code, problem.line) == ("recipe.conflict", 3)


def test_a_simulator_is_never_chosen_silently(write, monkeypatch):
    monkeypatch.delenv("MEDIATEK_SDK_ROOT", raising=False)
    for sdk, simulated in (("simulator", True), ("./simulator", False), ("Simulator", False)):
        recipe = load(str(write(text().replace("sdk: simulator", f"sdk: {sdk}")))).recipe
        assert recipe.neuron is not None
        assert recipe.neuron.simulated is simulated
    recipe = load(str(write(text().replace(", sdk: simulator", "")))).recipe
    assert recipe.neuron is not None
    assert not recipe.neuron.simulated


def test_a_build_with_the_simulated_npu_is_another_build(write):
    simulated = load(str(write(text()))).recipe
    vendor = load(str(write(text().replace("simulator", "sdk")))).recipe
    elsewhere = load(str(write(text().replace("simulator", "sdk2")))).recipe
    assert build_fingerprint(simulated, "host") != build_fingerprint(vendor, "host")
    assert build_fingerprint(vendor, "host") == build_fingerprint(elsewhere, "host")
