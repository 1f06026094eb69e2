"""`etcli validate` as users and scripts call it."""

import json
import subprocess
import sys

import pytest


def validate(cwd, *words):
    done = subprocess.run(
        [sys.executable, "-m", "etcli", "validate", "--json", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


def recipe(folder, text):
    path = folder / "etcli.yaml"
    path.write_text(text)
    return path


def test_a_good_recipe_and_checkpoint(tmp_path, random_llama):
    folder = random_llama(tokenizer=True)
    recipe(tmp_path, f"name: tiny\nmodel: {{source: {folder}}}\nexport: {{chunks: 2, shapes: [8t64c, 1t64c]}}\n")
    code, document = validate(tmp_path)
    assert code == 0, document
    assert document["result"]["format"] == "safetensors"
    assert document["result"]["model"]["num_layers"] == 2


def test_every_problem_of_recipe_and_checkpoint_at_once(tmp_path, random_llama):
    folder = random_llama(tokenizer=True)
    path = recipe(
        tmp_path,
        f"name: tiny\nmodel: {{source: {folder}}}\nexport:\n  precision: 8da4w\n  chunks: 3\n  shapes: [8t64c, 1t64c]\n",
    )
    code, document = validate(tmp_path)
    assert code == document["exit"] == 2
    found = {error["code"]: error for error in document["errors"]}
    assert found["recipe.chunks"]["line"] == 5
    assert "1, 2" in found["recipe.chunks"]["hint"]
    assert len(found) == 2
    assert {error["file"] for error in document["errors"]} == {str(path)}


def test_a_missing_checkpoint_is_the_checkpoints_exit_code(tmp_path):
    recipe(tmp_path, "name: tiny\nmodel: {source: ./nowhere}\n")
    code, document = validate(tmp_path)
    assert code == 5
    assert document["errors"][0]["line"] == 2


def test_what_is_not_fetched_yet_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "cache"))
    recipe(tmp_path, "name: tiny\nmodel: {source: 'pypi:some-package==1.0#a/b.gguf'}\n")
    code, document = validate(tmp_path)
    assert code == 0
    assert [warning["code"] for warning in document["warnings"]] == ["checkpoint.not_fetched"]
    assert document["result"]["checkpoint"] is None


@pytest.mark.parametrize("text", ["", "name: [", "- a\n- b\n"])
def test_what_is_no_recipe_is_exit_2(tmp_path, text):
    recipe(tmp_path, text)
    code, document = validate(tmp_path)
    assert code == 2
    assert document["errors"]
