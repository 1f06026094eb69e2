"""`etcli validate` as users and scripts call it."""

import json
import shutil
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
        f"name: tiny\nmodel: {{source: {folder}}}\nexport:\n  precision: fp32\n  chunks: 3\n  shapes: [8t64c, 1t64c]\nbuild: {{custom_ops: [./none]}}\n",
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


@pytest.fixture
def model(tmp_path, random_llama):
    """A copy of a small model with tokenizer that a test may damage, and a recipe for it."""
    folder = shutil.copytree(random_llama(tokenizer=True), tmp_path / "model")
    recipe(tmp_path, "name: tiny\nmodel: {source: model}\nexport: {chunks: 2, shapes: [8t64c, 1t64c]}\n")
    return folder


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("tokenizer.json", None, "tokenizer.missing"),
        ("tokenizer.json", "version https://git-lfs.github.com/spec/v1\n", "checkpoint.lfs_pointer"),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": {}, "merges": []}}', "tokenizer.invalid"),
        ("tokenizer_config.json", "[]", "tokenizer.invalid"),
        ("chat_template.jinja", "{% if %}", "tokenizer.chat_template"),
        ("chat_template.jinja", "{{ ''.__class__.__mro__ }}", "tokenizer.chat_template"),
        ("generation_config.json", '{"eos_token_id": 1000000}', "tokenizer.stop_ids"),
    ],
    ids=str,
)
@pytest.mark.known_failure("tokenizer-damaged")
def test_tokenizer_faults_are_found_before_anything_is_exported(tmp_path, model, name, content, code):
    if content is None:
        (model / name).unlink()
    else:
        (model / name).write_text(content)
    exit_code, document = validate(tmp_path)
    assert exit_code == document["exit"] == 5
    assert [error["code"] for error in document["errors"]] == [code]
    assert document["errors"][0]["hint"]


def test_weights_and_tokenizer_are_reported_together(tmp_path, model):
    (model / "tokenizer.json").unlink()
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    code, document = validate(tmp_path)
    assert code == 5
    assert [error["code"] for error in document["errors"]] == ["checkpoint.truncated", "tokenizer.missing"]


def test_a_file_that_both_read_is_reported_once(tmp_path, model):
    (model / "generation_config.json").write_text("{")
    _, document = validate(tmp_path)
    assert [error["file"] for error in document["errors"]] == [str(model / "generation_config.json")]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--set", "export.shapes=[8t512c,1t512c]"), "export.long_cache"),
        (("--set", f"run.prompt={'word ' * 70}"), "run.prompt_too_long"),
    ],
    ids=("cache", "prompt"),
)
def test_what_another_flag_would_cure_is_a_warning(tmp_path, model, words, code):
    exit_code, document = validate(tmp_path, *words)
    assert exit_code == 0, document
    assert [warning["code"] for warning in document["warnings"]] == [code]


def test_an_empty_prompt_is_a_warning_where_nothing_is_put_before_it(tmp_path, model):
    # The small tokenizer puts <|begin|> before every text, unless told otherwise.
    words = ("--set", "run.prompt=''", "--set", "run.chat=false")
    assert not validate(tmp_path, *words)[1]["warnings"]
    (model / "tokenizer_config.json").write_text('{"add_bos_token": false}')
    assert [warning["code"] for warning in validate(tmp_path, *words)[1]["warnings"]] == ["run.prompt_empty"]


def test_a_base_model_cannot_chat(tmp_path, model):
    (model / "chat_template.jinja").unlink()
    exit_code, document = validate(tmp_path)
    assert exit_code == 0
    assert [warning["code"] for warning in document["warnings"]] == ["tokenizer.no_chat_template"]
    assert not validate(tmp_path, "--set", "run.chat=false")[1]["warnings"]


def test_a_hub_source_that_is_not_there_yet_is_not_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    recipe(tmp_path, "name: tiny\nmodel: {source: 'hf:org/name@main'}\n")
    code, document = validate(tmp_path)
    assert code == 0
    assert [warning["code"] for warning in document["warnings"]] == ["checkpoint.not_fetched"]


def test_an_adapter_is_checked_with_its_base(tmp_path, model):
    (tmp_path / "lora").mkdir()
    source = next(line for line in (tmp_path / "etcli.yaml").read_text().splitlines() if "source" in line)
    assert source
    code, document = validate(tmp_path, "--set", f"model.adapter={tmp_path / 'lora'}")
    assert code == 5
    assert [error["code"] for error in document["errors"]] == ["adapter.missing"]
    assert document["errors"][0]["file"] == str(tmp_path / "lora")


def test_validation_never_imports_torch(tmp_path, model):
    code = (
        "import sys; from etcli.cli.main import main\n"
        "try: main(['validate'])\n"
        "finally: print('torch' in sys.modules, 'executorch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout.splitlines()[-1] == "False False", done.stderr


@pytest.mark.parametrize(
    ("chunks", "cache", "codes"),
    [(1, 64, []), (1, 65, ["recipe.sliding_window"]), (3, 65, ["recipe.chunks", "recipe.sliding_window"])],
)
def test_a_cache_beyond_a_sliding_window_is_refused(tmp_path, model, chunks, cache, codes):
    # Attention over more positions than the window would give other tokens than the model's own.
    config = json.loads((model / "config.json").read_text())
    config |= {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 64}
    (model / "config.json").write_text(json.dumps(config))
    code, document = validate(
        tmp_path, "--set", f"export.shapes=[8t{cache}c,1t{cache}c]", "--set", f"export.chunks={chunks}"
    )
    assert [error["code"] for error in document["errors"]] == codes
    assert code == (2 if codes else 0)


def test_a_missing_checkpoint_names_the_variable_that_says_where(tmp_path, monkeypatch):
    monkeypatch.delenv("SOME_MODEL", raising=False)
    recipe(tmp_path, "name: tiny\nmodel: {source: '${SOME_MODEL:-nowhere}'}\n")
    _, document = validate(tmp_path)
    hint = document["errors"][0]["hint"]
    assert hint == f"Set SOME_MODEL to where it is. Relative paths start at the recipe's folder, {tmp_path}."


def test_a_built_in_recipe_has_no_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.delenv("LLAMA_3_1_8B_AQLM", raising=False)
    _, document = validate(tmp_path, "llama3.1-8b-aqlm")
    (error,) = [error for error in document["errors"] if error["code"] == "source.missing"]
    assert error["hint"] == f"Set LLAMA_3_1_8B_AQLM to where it is. Relative paths start at {tmp_path}."


def test_a_second_quantisation_is_a_warning(tmp_path, default_model):
    recipe(tmp_path, f"name: twice\nmodel: {{source: {default_model}}}\nexport: {{precision: 8da4w}}\n")
    for words, told in (((), ["export.quantised_twice"]), (("--set", "export.precision=fp32"), [])):
        code, document = validate(tmp_path, *words)
        assert code == 0, document
        assert [warning["code"] for warning in document["warnings"]] == told
