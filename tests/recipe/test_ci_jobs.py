"""The CI job files that `etcli recipe new --ci` writes: read back as YAML, their commands held against the real command line, their scripts run."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from etcli.cli.main import cli
from etcli.common.errors import RecipeError, UsageError
from etcli.recipe.ci import SYSTEMS, check_ci, ci_text, write_ci
from etcli.recipe.starter import write_new

EXPRESSION = re.compile(r"\$\{\{\s*(.+?)\s*\}\}")


def github() -> dict[str, Any]:
    jobs = yaml.safe_load(ci_text("github", ["models/etcli.yaml"]))
    assert isinstance(jobs, dict)
    return jobs


def gitlab() -> dict[str, Any]:
    jobs = yaml.safe_load(ci_text("gitlab", ["models/etcli.yaml"]))
    assert isinstance(jobs, dict)
    return jobs


def scripts(system: str) -> list[str]:
    """Every script of the jobs, each as it is given to bash."""
    if system == "github":
        return [step["run"] for job in github()["jobs"].values() for step in job["steps"] if "run" in step]
    parts = ("before_script", "script", "after_script")
    return ["\n".join(job[part]) for job in gitlab().values() for part in parts if part in job]


def commands(script: str) -> Iterator[list[str]]:
    """The words after `etcli` of every command of it, without redirections."""
    for line in script.splitlines():
        for part in re.split(r"\bthen |; ", line):
            words = shlex.split(part.split(" > ")[0]) if part.strip().startswith("etcli ") else []
            if words:
                yield words[1:]


def parse(words: list[str]) -> click.Command:
    """The command that `words` mean, its options and arguments parsed; nothing is carried out."""
    command: click.Command = cli
    context = click.Context(command)
    while isinstance(command, click.Group) and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, words
        command, words = found, words[1:]
    command.make_context(command.name, list(words), parent=context, resilient_parsing=False)
    return command


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_command_is_one_of_etclis_with_options_that_it_has(system: str) -> None:
    called = [words for script in scripts(system) for words in commands(script)]
    assert {words[0] for words in called} >= {"recipe", "--version", "validate", "smoke", "doctor", "device"}
    for words in called:
        if words[0] != "--version":  # which ends the program as soon as it is read
            assert parse(words).name
    (smoke,) = [words for words in called if words[0] == "smoke"]
    assert smoke[1] == "$RECIPE"
    assert {"virtual:aarch64", "--junit", "etcli-junit.xml", "--json"} <= set(smoke)
    with pytest.raises(click.NoSuchOption):
        parse([*smoke, "--junti", "x.xml"])


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_script_is_bash(system: str) -> None:
    for script in scripts(system):
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), script


def test_github_jobs_have_the_shape_of_a_workflow() -> None:
    workflow = github()
    assert set(workflow) == {"name", True, "permissions", "concurrency", "env", "defaults", "jobs"}  # YAML 1.1's `on`
    assert set(workflow[True]) == {"push", "pull_request", "workflow_dispatch"}
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["runs-on"]
        assert job["timeout-minutes"] > 0
        assert set(job.get("needs", "recipes").split()) <= set(workflow["jobs"])
        for step in job["steps"]:
            assert len({"uses", "run"} & set(step)) == 1
            assert "${{" not in step.get("run", ""), "values reach a shell through its environment only"
            assert re.fullmatch(r"actions/[a-z/-]+@v\d+", step["uses"]) if "uses" in step else step["name"]


def test_github_expressions_name_what_is_there() -> None:
    workflow = github()
    outputs = {name: set(job.get("outputs", {})) for name, job in workflow["jobs"].items()}
    for name, job in workflow["jobs"].items():
        ids = {step["id"] for step in job["steps"] if "id" in step}
        text = json.dumps(job)
        for expression in EXPRESSION.findall(text):
            for used in re.findall(r"steps\.(\w+)", expression):
                assert used in ids
            for needed, output in re.findall(r"needs\.(\w+)\.outputs\.(\w+)", expression):
                assert needed in str(job["needs"])
                assert output in outputs[needed]
        if name == "smoke":
            assert set(re.findall(r"matrix\.(\w+)", text)) == {"name", "recipe", "sha256"}
    (restore,) = [step for step in workflow["jobs"]["smoke"]["steps"] if step.get("id") == "cache"]
    key = restore["with"]["key"]
    assert "outputs.versions" in key
    assert "matrix.sha256" in key
    for fallback in restore["with"]["restore-keys"].splitlines():
        assert key.replace(" ", "").startswith(fallback.replace(" ", ""))


def test_gitlab_jobs_have_the_shape_of_a_pipeline() -> None:
    jobs = gitlab()
    assert set(jobs) == {".etcli", "etcli-recipes", "etcli", ".etcli-smoke"}
    for job in jobs.values():
        assert job.get("extends", ".etcli") in jobs
    assert jobs["etcli"]["trigger"]["include"] == [{"artifact": "etcli-pipeline.yml", "job": "etcli-recipes"}]
    assert jobs["etcli-recipes"]["artifacts"]["paths"] == ["etcli-pipeline.yml"]
    not_child = [{"if": '$CI_PIPELINE_SOURCE != "parent_pipeline"'}]
    # the child includes this file again: without these rules it would start children without end
    assert jobs["etcli"]["rules"] == jobs["etcli-recipes"]["rules"] == not_child
    smoke = jobs[".etcli-smoke"]
    assert smoke["artifacts"]["reports"] == {"junit": "etcli-junit.xml"}
    assert smoke["artifacts"]["when"] == "always"
    (cache,) = smoke["cache"]
    assert {"$VERSIONS", "$RECIPE_SHA256"} <= set(re.findall(r"\$\w+", cache["key"]))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two recipes; one needs a checkpoint that CI does not bring."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "etcli.yaml").write_text("# summary: a model\nname: mine\nextends: smollm2-135m\n")
    (tmp_path / "own.yaml").write_text("# needs: a checkpoint\nname: own\nextends: smollm2-135m\n")
    return tmp_path


def in_bash(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it as a CI system would, with this environment's `etcli` and `python` and no pip."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path, "CI": "true", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def listing(system: str, recipes: list[str]) -> str:
    """The script that lists the recipes, without installing etcli first."""
    jobs = yaml.safe_load(ci_text(system, recipes))
    if system == "github":
        (step,) = [step for step in jobs["jobs"]["recipes"]["steps"] if step.get("id") == "list"]
        return str(step["run"])
    lines = [line for line in jobs["etcli-recipes"]["script"] if "pip install" not in line]
    return "\n".join(lines)


def installing(system: str) -> str:
    """The script that installs etcli; it is the same wherever it stands."""
    found = {re.sub(r"(?s).*(?=case )", "", script) for script in scripts(system) if "pip install" in script}
    assert len({text.split('"$ETCLI"\n')[0] for text in found}) == 1
    return min(found, key=len)


def pip_calls(system: str, folder: Path, **environment: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """What came of the script, and the calls of a pip that does nothing, and has no torch where $NO_TORCH says so."""
    programs = folder / "programs"
    programs.mkdir()
    python = programs / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\ncase "$NO_TORCH $*" in "1 "*torch==*) exit 1 ;; esac\n')
    python.chmod(0o755)
    jobs = github()["env"] if system == "github" else gitlab()[".etcli"]["variables"]
    values = {"ETCLI": "", "ETCLI_TORCH_INDEX": "", "TORCH": jobs["TORCH"], **environment}
    script = f"export PATH={shlex.quote(str(programs))}:$PATH\n{installing(system)}"
    done = in_bash(script, folder, **values)
    calls = folder / "calls"
    return done, calls.read_text().splitlines() if calls.exists() else []


@pytest.mark.parametrize("value", ["", "etcli", "etcli==0.1.0", "etcli[hub]"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_job_never_installs_by_a_bare_name(system: str, value: str, tmp_path: Path) -> None:
    done, calls = pip_calls(system, tmp_path, ETCLI=value)
    assert done.returncode == 1
    assert calls == []
    (line,) = done.stderr.splitlines()
    assert "set it to a wheel's path or URL" in line
    assert SYSTEMS[system].place in line


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(
    "value", ["wheels/etcli-1-py3-none-any.whl", "https://e.test/etcli.whl", "git+https://e.test/etcli@0123abc"]
)
def test_a_job_installs_the_cpu_build_first_and_then_what_was_filled_in(
    system: str, value: str, tmp_path: Path
) -> None:
    done, calls = pip_calls(system, tmp_path, ETCLI=value, ETCLI_TORCH_INDEX="https://e.test/cpu")
    assert done.returncode == 0, done.stderr
    torch, own = calls
    assert re.fullmatch(r"-m pip install --extra-index-url https://e\.test/cpu torch==[0-9.]+\+cpu", torch)
    assert own == f"-m pip install {value}"


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_job_that_finds_no_cpu_build_names_the_variable(system: str, tmp_path: Path) -> None:
    done, calls = pip_calls(system, tmp_path, ETCLI="./etcli.whl", NO_TORCH="1")
    assert done.returncode == 1
    assert len(calls) == 1
    assert "--extra-index-url" not in calls[0]
    assert "ETCLI_TORCH_INDEX" in done.stderr.splitlines()[-1]


def test_the_values_to_be_filled_in_are_empty_or_the_repositorys() -> None:
    names = ("ETCLI", "ETCLI_TORCH_INDEX")
    assert [gitlab()[".etcli"]["variables"][name] for name in names] == ["", ""]
    assert [github()["env"][name] for name in names] == [f"${{{{ vars.{name} }}}}" for name in names]


def test_the_command_ends_with_what_is_to_be_filled_in(repository: Path) -> None:
    done = CliRunner().invoke(cli, ["recipe", "new", str(repository / "own.yaml"), "--ci", "github"])
    assert done.exit_code == 0, done.output
    last = done.output.splitlines()[-1]
    assert "ETCLI " in last
    assert "ETCLI_TORCH_INDEX" in last


def test_github_matrix_comes_from_the_list_of_recipes(repository: Path) -> None:
    output = repository / "output"
    done = in_bash(listing("github", ["models/etcli.yaml", "own.yaml"]), repository, GITHUB_OUTPUT=str(output))
    assert done.returncode == 0, done.stderr
    told = dict(line.split("=", 1) for line in output.read_text().splitlines())
    (row,) = json.loads(told["matrix"])["include"]
    assert (row["name"], row["recipe"]) == ("mine", "models/etcli.yaml")
    assert re.fullmatch("[0-9a-f]{64}", row["sha256"])
    assert re.fullmatch("[0-9a-f]{64}", told["versions"])


def test_gitlab_child_pipeline_comes_from_the_list_of_recipes(repository: Path) -> None:
    done = in_bash(listing("gitlab", ["models/etcli.yaml", "own.yaml"]), repository)
    assert done.returncode == 0, done.stderr
    child = yaml.safe_load((repository / "etcli-pipeline.yml").read_text())
    assert child["include"] == [{"local": f"/{SYSTEMS['gitlab'].place}"}]
    job = child["etcli-smoke"]
    assert job["extends"] in gitlab()
    (row,) = job["parallel"]["matrix"]
    assert (row["NAME"], row["RECIPE"]) == ("mine", "models/etcli.yaml")
    used = set(re.findall(r"\$(NAME|RECIPE\w*|VERSIONS)", json.dumps(gitlab()[".etcli-smoke"])))
    assert used == set(row)


@pytest.mark.parametrize("system", SYSTEMS)
def test_without_a_recipe_that_ci_can_run_the_list_says_so(system: str, repository: Path) -> None:
    done = in_bash(listing(system, ["own.yaml"]), repository, GITHUB_OUTPUT=str(repository / "output"))
    assert done.returncode != 0
    assert "needs something that CI does not bring" in done.stderr


def test_the_hash_changes_with_what_export_and_build_read_alone(repository: Path) -> None:
    def sha256(*lines: str) -> str:
        (repository / "r.yaml").write_text("\n".join(["name: mine", "extends: smollm2-135m", *lines, ""]))
        done = CliRunner().invoke(cli, ["recipe", "list", str(repository / "r.yaml"), "--json"])
        return str(json.loads(done.output)["result"]["recipes"][0]["sha256"])

    before = sha256()
    assert sha256("run: {prompt: Hello}") == before
    assert len({before, sha256("export: {chunks: 3}"), sha256("build: {openmp: static}")}) == 3


def test_files_stand_at_the_top_of_the_repository(repository: Path) -> None:
    recipe = repository / "models" / "etcli.yaml"
    before = recipe.read_text()
    done = CliRunner().invoke(cli, ["recipe", "new", str(recipe), "--ci", "github", "--ci", "gitlab", "--json"])
    assert done.exit_code == 0, done.output
    files = {Path(file).relative_to(repository).as_posix() for file in json.loads(done.output)["result"]["ci"]}
    assert files == {".github/workflows/etcli.yml", ".gitlab/etcli.yml", ".gitlab-ci.yml"}
    assert recipe.read_text() == before, "a recipe that is there is used as it is"
    assert "recipe list models/etcli.yaml" in (repository / ".github/workflows/etcli.yml").read_text()
    included = yaml.safe_load((repository / ".gitlab-ci.yml").read_text())
    assert included == {"include": [{"local": ".gitlab/etcli.yml"}]}


def test_without_a_recipe_a_starter_comes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    new = write_new(Path("etcli.yaml"), name="mine", ci=["github", "github"])
    assert new.starter
    assert new.ci.files == (tmp_path / ".github/workflows/etcli.yml",)
    assert (tmp_path / "etcli.yaml").read_text().count("name: mine") == 1


def test_a_pipeline_of_the_users_own_is_left_alone(repository: Path) -> None:
    (repository / ".gitlab-ci.yml").write_text("stages: [test]\n")
    written = write_ci(["gitlab"], repository / "own.yaml")
    assert (repository / ".gitlab-ci.yml").read_text() == "stages: [test]\n"
    assert written.files == (repository / ".gitlab/etcli.yml",)
    assert "include:\n  - local: .gitlab/etcli.yml" in written.remarks[0]


def test_nothing_is_written_where_something_is_wrong(repository: Path) -> None:
    (repository / ".gitlab").mkdir()
    (repository / ".gitlab" / "etcli.yml").write_text("mine")
    with pytest.raises(UsageError) as caught:
        write_new(repository / "new.yaml", ci=["github", "gitlab"])
    assert caught.value.problems[0].code == "recipe.exists"
    assert not (repository / "new.yaml").exists()
    assert not (repository / ".github").exists()
    (repository / "models" / "etcli.yaml").write_text("nmae: x\n")
    with pytest.raises(RecipeError):
        write_new(repository / "models" / "etcli.yaml", ci=["github"])
    assert not (repository / ".github").exists()
    with pytest.raises(UsageError, match="exists"):  # a name is for a new recipe
        write_new(repository / "own.yaml", name="other", ci=["github"])
    assert not (repository / ".github").exists()


@pytest.mark.parametrize(
    "name", ["a;b.yaml", "${{ github.token }}.yaml", "a\nb.yaml", "$(id).yaml", "-x.yaml", "é.yaml"]
)
def test_a_path_that_could_mean_something_else_is_refused(name: str, repository: Path) -> None:
    with pytest.raises(UsageError) as caught:
        check_ci(["github"], repository / name)
    assert caught.value.problems[0].code == "recipe.ci_path"


def test_a_path_with_spaces_stays_one_word(repository: Path) -> None:
    (repository / "my models").mkdir()
    (repository / "own.yaml").rename(repository / "my models" / "r.yaml")
    write_ci(["github"], repository / "my models" / "r.yaml")
    jobs = yaml.safe_load((repository / ".github/workflows/etcli.yml").read_text())
    (step,) = [step for step in jobs["jobs"]["recipes"]["steps"] if step.get("id") == "list"]
    assert next(commands(step["run"])) == ["recipe", "list", "my models/r.yaml", "--json"]
