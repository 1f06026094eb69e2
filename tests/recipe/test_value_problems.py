"""Keys and values that the schema refuses, each with its place and a remedy."""

from __future__ import annotations

import pytest

from etcli.recipe.loader import load

HEAD = "name: a\nmodel: {source: x}\n"


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("exprot: {}", "Did you mean 'export'?"),
        ("export: {bakend: xnnpack}", "Did you mean 'backend'?"),
        ("build: {executorch: {form: wheel}}", "Did you mean 'from'?"),
        ("chunks: 5", "That key is export.chunks."),
        ("run: {shapes: [1t512c]}", "That key is export.shapes."),
        ("maxnewtokens: 5", "Did you mean run.max_new_tokens?"),
        ("extend: smollm2-135m", "Did you mean 'extends'?"),
        ("deploy: {zzz: 1}", "Known here: dir."),
    ],
)
def test_unknown_keys(problems_of, line, hint):
    (problem,) = problems_of(HEAD + line)
    assert (problem.code, problem.line, problem.hint) == ("recipe.unknown_key", 3, hint)


@pytest.mark.parametrize(
    ("line", "column", "hint"),
    [
        ("run: {prompt: no}", 15, 'Put it into quotes: prompt: "no"'),
        ("run: {prompt: 1e3}", 15, 'Put it into quotes: prompt: "1e3"'),
        ("run: {prompt: 1.10}", 15, 'Put it into quotes: prompt: "1.10"'),
        ("run: {prompt: 2024-01-01}", 15, 'Put it into quotes: prompt: "2024-01-01"'),
        ("run: {prompt: 0x1F}", 15, 'Put it into quotes: prompt: "0x1F"'),
        ("run: {prompt: 0o17}", 15, 'Put it into quotes: prompt: "0o17"'),
        ("run: {prompt: 1:30}", 15, 'Put it into quotes: prompt: "1:30"'),
        ("run: {prompt: .inf}", 15, 'Put it into quotes: prompt: ".inf"'),
        ("run: {prompt: 1e999}", 15, 'Put it into quotes: prompt: "1e999"'),
        ("run: {prompt: }", 14, "Remove the key to get its default, or write a value ('' is empty text)."),
        ("run: {prompt: [a]}", 7, "The user's words."),
        ("run: {chat: 1}", 13, "Put the prompt into the model's chat template."),
        ("run: {chat: 'yes'}", 13, "Write true or false."),
        ("run: {max_new_tokens: '5'}", 23, "Write it without quotes, as a plain decimal number."),
        ("run: {max_new_tokens: 1e3}", 23, "Write max_new_tokens: 1000"),
        ("run: {max_new_tokens: 1.5}", 23, "Upper bound of generated tokens."),
        ("run: {max_new_tokens: 010}", 23, "Upper bound of generated tokens."),
        ("run: {max_new_tokens: 1_000}", 23, "Upper bound of generated tokens."),
        ("run: {max_new_tokens: yes}", 23, "Upper bound of generated tokens."),
        ("run: {seed: 99999999999999999999999}", 13, "Seed of sampling."),
        ("run: {temperature: on}", 20, "0 is greedy decoding."),
        ("run: {temperature: '0.5'}", 20, "Write it without quotes, as a plain decimal number."),
        ("run: {temperature: .nan}", 20, "0 is greedy decoding."),
        ("run: text", 6, "What to run."),
        ("export: {shapes: 32t512c}", 18, "Write shapes: [32t512c]"),
        ("export: {precision: 1.10}", 21, "Write one of these words."),
        ("build: {custom_ops: [no]}", 22, 'Put it into quotes: "no"'),
    ],
)
def test_wrong_types(problems_of, line, column, hint):
    (problem,) = problems_of(HEAD + line)
    assert (problem.code, problem.line, problem.column, problem.hint) == ("recipe.wrong_type", 3, column, hint)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("export: {backend: xnpack}", "'xnpack' is not one of portable, xnnpack, neuron"),
        ("export: {chunks: 0}", "greater than or equal to 1"),
        ("export: {shapes: [32t512c, 1x512c]}", "'1x512c' is not a shape"),
        ("export: {shapes: [600t512c, 1t512c]}", "more tokens per call"),
        ("export: {shapes: [32t512c]}", "exactly one shape must be of one token"),
        ("export: {shapes: [1t512c]}", "a prompt shape is missing"),
        ("export: {shapes: [32t512c, 1t256c]}", "the same cache length"),
        ("export: {shapes: [32t512c, 32t512c, 1t512c]}", "same number of tokens"),
        ("run: {top_p: 1.5}", "less than or equal to 1"),
        ("run: {timeout_s: 0}", "greater than 0"),
        ("deploy: {dir: /sdcard/x}", "not a folder below /data/local/tmp"),
        ("deploy: {dir: x}", "not a folder below /data/local/tmp"),
        ("deploy: {dir: /data/local/tmp}", "not a folder below /data/local/tmp"),
        ("deploy: {dir: /data/local/tmpx/y}", "not a folder below /data/local/tmp"),
        ("deploy: {dir: /data/local/tmp/}", "not a plain path"),
        ("deploy: {dir: /data/local/tmp/a/}", "not a plain path"),
        ("deploy: {dir: /data/local/tmp//a}", "not a plain path"),
        ("deploy: {dir: /data/local/tmp/../x}", ". or .."),
        ("deploy: {dir: /data/local/tmp/a/./b}", ". or .."),
        ("deploy: {dir: '/data/local/tmp/a b'}", "not a plain path"),
        ("deploy: {dir: '/data/local/tmp/a;reboot'}", "not a plain path"),
        ("deploy: {dir: '/data/local/tmp/$(reboot)'}", "not a plain path"),
        ('deploy: {dir: "/data/local/tmp/a\\nb"}', "not a plain path"),
        ("deploy: {dir: /data/local/tmp/-rf}", "not a plain path"),
        (f"deploy: {{dir: /data/local/tmp/{'x' * 200}}}", "at most 200"),
    ],
)
def test_wrong_values(problems_of, line, said):
    (problem,) = problems_of(HEAD + line)
    assert (problem.code, problem.line) == ("recipe.wrong_value", 3)
    assert said in problem.message
    assert problem.hint


@pytest.mark.parametrize(
    "name", ["Upper", "a b", "-a", ".a", "x" * 65, "a/b", "''", "a32t512c", "q-1t2c-x", "ä", '"a\\n"']
)
def test_wrong_names(problems_of, name):
    (problem,) = problems_of(f"name: {name}\nmodel: {{source: x}}\n")
    assert (problem.code, problem.line, problem.column) == ("recipe.wrong_value", 1, 7)


@pytest.mark.parametrize(
    "source",
    [
        "''",
        "pypi:x",
        "pypi:a==1#../x",
        "pypi:a==1#/etc/x",
        "pypi:-r==1#m",
        "hf:x",
        "hf:org/name",
        "https://x/y.gguf",
        "s3://b/k",
    ],
)
def test_wrong_sources(problems_of, source):
    (problem,) = problems_of(f"name: a\nmodel: {{source: '{source.strip(chr(39))}'}}\n")
    assert (problem.code, problem.line) == ("recipe.wrong_value", 2)


def test_a_model_that_is_only_a_path_is_told_where_it_goes(problems_of):
    (problem,) = problems_of("name: a\nmodel: models/tiny\n")
    assert (problem.code, problem.hint) == ("recipe.wrong_type", "Write model: {source: models/tiny}")


def test_wrong_hash(problems_of):
    (problem,) = problems_of("name: a\nmodel: {source: x, sha256: ABC}\n")
    assert "64 lower-case hex digits" in problem.message


def test_missing_keys_point_at_their_mapping(problems_of):
    problems = problems_of("model:\n  sha256: null\n")
    assert [(problem.code, problem.line, problem.message) for problem in problems] == [
        ("recipe.missing_key", 1, "name is missing"),
        ("recipe.missing_key", 1, "model.source is missing"),
    ]


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("export: {backend: neuron, precision: A16W4}", 19),
        ("neuron: {platform: mt6991, sdk: simulator}", 1),
        ("export: {precision: A16W4}", 21),
        ("export: {backend: portable, precision: 8da4w}", 40),
        ("build: {executorch: {from: prefix}}", 9),
        ("build: {executorch: {root: x}}", 28),
        ("build: {target: androd}", 17),
        ("export: {cache: ring}\nrun: {runner: mtk}", 17),
        ("export: {shapes: [32t64c, 16t64c, 1t64c]}\nrun: {runner: mtk}", 10),
    ],
)
def test_contradictions(problems_of, text, at):
    (problem,) = problems_of(HEAD + text)
    assert problem.code == "recipe.conflict"
    assert (problem.line, problem.column) == (3, at)
    assert problem.hint


@pytest.mark.parametrize(
    ("neuron", "said"),
    [
        ("{platform: mt6897, sdk: simulator}", "'mt6897' is not an SoC"),
        ("{platform: mt6991, sdk: simulator, calibration: {}}", "either file or prompts"),
        ("{platform: mt6991, sdk: simulator, calibration: {file: a, prompts: [b]}}", "as file (a) and as prompts (1)"),
    ],
)
def test_contradictions_of_neuron(problems_of, neuron, said):
    (problem,) = problems_of(f"{HEAD}export: {{backend: neuron, precision: A16W4}}\nneuron: {neuron}\n")
    assert said in problem.message
    assert problem.line == 4


def test_no_contradiction_is_made_out_of_a_mistake(problems_of):
    problems = problems_of(
        HEAD + "export: {bakend: neuron, precision: A16W4}\nneuron: {platform: mt6991, sdk: simulator}\n"
    )
    assert [problem.code for problem in problems] == ["recipe.unknown_key"]
    problems = problems_of(HEAD + "export: {backend: neurn}\nneuron: {platform: mt6991, sdk: simulator}\n")
    assert [problem.code for problem in problems] == ["recipe.wrong_value"]


def test_contradictions_come_together_with_the_others(problems_of):
    problems = problems_of("model: {source: x}\nexport: {precision: A16W4}\nrun: {chat: 5}\n")
    assert [(problem.code, problem.line) for problem in problems] == [
        ("recipe.missing_key", 1),
        ("recipe.conflict", 2),
        ("recipe.wrong_type", 3),
    ]


def test_what_is_right(write):
    path = write(
        """\
        name: ok.1_2-x
        model:
          source: ~/model
        export:
        build:
          openmp: off
          executorch:
        run:
          chat: yes
          temperature: 1e-3
          top_p: 1
          timeout_s: 90
          system: null
          prompt: '1.10'
        deploy:
          dir: /data/local/tmp/etcli/a_b+c-d.e
        """
    )
    recipe = load(str(path)).recipe
    assert recipe.build.openmp == "off"
    assert (recipe.run.chat, recipe.run.temperature, recipe.run.top_p, recipe.run.timeout_s) == (True, 0.001, 1.0, 90.0)
    assert recipe.export.shapes == ("32t512c", "1t512c")
    assert recipe.run.prompt == "1.10"
    assert recipe.device_dir == "/data/local/tmp/etcli/a_b+c-d.e"


def test_places_of_what_is_right(write):
    path = write("name: a\nmodel:\n  source: x\nexport:\n  shapes: [8t64c,\n    1t64c]\n")
    loaded = load(str(path))
    assert (loaded.location("model.source").line, loaded.location("model.source").column) == (3, 3)
    assert loaded.location("export.shapes.1").line == 6
    assert loaded.location("export.backend").line == 4
    assert loaded.location("run.prompt").file == path
    assert loaded.location("run.prompt").line is None


def test_a_file_that_is_no_recipe_at_all_is_cut_short(problems_of):
    problems = problems_of("".join(f"key{number}: 1\n" for number in range(3000)))
    assert problems[-1].code == "recipe.unknown_key"
    (rest,) = [problem for problem in problems if problem.code == "recipe.too_many"]
    assert "more keys are wrong" in rest.message
    assert len(problems) == 101
