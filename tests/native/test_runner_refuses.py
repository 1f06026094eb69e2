"""What the Llama runner refuses: each failure is one `error` event that names the culprit, and the status of its kind."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
import torch
from executorch.exir import to_edge


class Passing(torch.nn.Module):
    """A chunk of one layer in its signature alone."""

    def forward(self, hidden, mask, rotary, key, value):
        return hidden + mask.sum() + rotary.sum(), key + 1, value + 1


def refused(run, status: int, code: str, *parts: str) -> None:
    assert run.status == status, (run.status, run.events, run.stderr)
    assert [event["event"] for event in run.events if event["event"] != "start"] == ["error"]
    error = run.one("error")
    assert error["code"] == code
    for part in parts:
        assert part in error["message"]
    assert f"error: {error['message']}" in run.stderr


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["--config is needed"]),
        (["--config", "x"], ["a prompt is needed"]),
        (["--config"], ["--config needs a value"]),
        (["--config", "x", "--prompt-ids", "1", "--prompt-ids-file", "y"], ["exclude one another"]),
        (["--config", "x", "--prompt-ids", "1", "--max-new-tokens", "0"], ["--max-new-tokens", "from 1"]),
        (["--config", "x", "--prompt-ids", "1", "--threads", "0"], ["--threads", "from 1 to 1024"]),
        (["--config", "x", "--prompt-ids", "1", "--top-k", "1"], ["unknown argument '--top-k'"]),
        (["--config", "x", "--config", "y", "--prompt-ids", "1"], ["--config is given twice"]),
        (["--check=1"], ["--check takes no value"]),
    ],
)
def test_wrong_command_lines(llama_runner, arguments: list[str], parts: list[str]) -> None:
    refused(llama_runner(*arguments), 2, "runner.usage", *parts)


@pytest.mark.parametrize(
    ("prompt", "parts"),
    [
        ("", ["no tokens"]),
        ("1,160", ["prompt id 1 is 160", "the vocabulary has 160"]),
        ("1,two", ["prompt id 1 is 'two'"]),
        (",".join(["1"] * 25), ["has 25 tokens", "holds 24"]),
    ],
)
def test_wrong_prompts(tiny_bundle, llama_runner, prompt: str, parts: list[str]) -> None:
    refused(llama_runner("--config", tiny_bundle().config, "--prompt-ids", prompt), 2, "runner.prompt", *parts)


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"cache_length": None, "colour": "red"}, ["'cache_length' is missing", "unknown key 'colour'"]),
        ({"hidden_size": "64.0"}, ["runner.cfg:", "'hidden_size' is '64.0'"]),
        ({"rope.path": "../rope.bin"}, ["not a path inside the bundle"]),
        ({"chunks": "2"}, ["unknown key 'chunk.2.layers'"]),
    ],
)
def test_wrong_configurations(tiny_bundle, llama_runner, changed, values, parts: list[str]) -> None:
    config = changed(tiny_bundle(), values)
    refused(llama_runner("--config", config, "--prompt-ids", "1"), 2, "runner.config", *parts)


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        (
            {"cache_length": 20, "rope.positions": 24},
            [
                "tiny_0.pte, method 'tiny_1t24c_0'",
                "input 1 (mask) is float32 [1, 1, 1, 25]",
                "needs float32 [1, 1, 1, 21]",
            ],
        ),
        ({"num_kv_heads": 4}, ["(key cache 0) is float32 [1, 2, 24, 16]", "needs float32 [1, 4, 24, 16]", " more"]),
        ({"chunk.0.layers": 1, "chunk.1.layers": 2}, ["7 inputs, 1 layers need 5", "5 outputs, 1 layers need 3"]),
        (
            {"chunk.0.method.1.name": "tiny_3t24c_0"},
            [
                "method 'tiny_3t24c_0': input 0 (hidden) is float32 [1, 3, 64], the configuration needs float32 [1, 1, 64]"
            ],
        ),
        # the order of the chunks matters, and the last has to end in logits
        (
            {
                f"chunk.{at}.method.{tokens}.{key}": value
                for at, real in ((1, 2), (2, 1))
                for tokens in (8, 3, 1)
                for key, value in (("path", f"chunks/tiny_{real}.pte"), ("name", f"tiny_{tokens}t24c_{real}"))
            },
            ["output 0 (hidden) is float32 [1, 1, 160]", "output 0 (logits) is float32 [1, 1, 64]"],
        ),
    ],
    ids=["cache_length", "kv_heads", "layers", "shapes_swapped", "chunks_swapped"],
)
def test_tensors_that_do_not_fit(tiny_bundle, llama_runner, changed, values, parts: list[str]) -> None:
    config = changed(tiny_bundle(), values)
    refused(llama_runner("--config", config, "--prompt-ids", "1"), 4, "runner.tensor", *parts)


def test_programs_of_the_other_kind_of_cache(tiny_bundle, llama_runner, changed) -> None:
    config = changed(tiny_bundle(), {"cache": "ring"})
    refused(
        llama_runner("--config", config, "--check"),
        4,
        "runner.tensor",
        "tiny_0.pte, method 'tiny_1t24c_0': input 1 (pos) is float32 [1, 1, 1, 25], the configuration needs int64 [2]",
        "runner.cfg (cache=ring) and the programs have to come from one export",
    )


def test_a_wrong_vocabulary(tiny_bundle, llama_runner, changed) -> None:
    config = changed(tiny_bundle(), {"vocab_size": 128, "embedding.rows": 128})
    embedding = config.parent / "embedding.bin"
    content = embedding.read_bytes()
    embedding.write_bytes(content[: 128 * 64 * 4])
    refused(
        llama_runner("--config", config, "--check"),
        4,
        "runner.tensor",
        "(logits) is float32 [1, 1, 160]",
        "[1, 1, 128]",
    )


@pytest.mark.parametrize(
    ("values", "code", "parts"),
    [
        ({"embedding.path": "none.bin"}, "runner.file", ["none.bin", "No such file"]),
        (
            {"embedding.path": "rope_float32.bin"},
            "runner.file",
            ["has 3072 bytes", "embedding of [160, 64]", "needs 40960"],
        ),
        ({"embedding.dtype": "float16"}, "runner.file", ["has 40960 bytes", "needs 20480"]),
        (
            {"embedding.dtype": "int4", "embedding.group_size": 32},
            "runner.file",
            ["has 40960 bytes", "int4 embedding of [160, 64] in groups of 32 needs 6400"],
        ),
        ({"head_dim": 18}, "runner.file", ["rotary table of [24, 2, 18]", "needs 3456"]),
        ({"rope.path": "chunks"}, "runner.file", ["chunks is not a regular file"]),
        ({"chunk.1.method.3.path": "chunks/tiny_9.pte"}, "runner.file", ["tiny_9.pte", "No such file"]),
        (
            {"chunk.1.method.3.path": "embedding.bin"},
            "runner.load",
            ["embedding.bin", "not a whole ExecuTorch program"],
        ),
        (
            {"chunk.1.method.3.name": "forward"},
            "runner.method",
            ["tiny_1.pte has no method 'forward'", "'tiny_1t24c_1', 'tiny_3t24c_1', 'tiny_8t24c_1'"],
        ),
    ],
)
@pytest.mark.known_failure("tokenizer-fallback-noise")
def test_files_that_do_not_fit(tiny_bundle, llama_runner, changed, values, code: str, parts: list[str]) -> None:
    config = changed(tiny_bundle(), values)
    refused(llama_runner("--config", config, "--prompt-ids", "1"), 3, code, *parts)


def test_a_missing_configuration(llama_runner, tmp_path: Path) -> None:
    refused(llama_runner("--config", tmp_path / "no.cfg", "--prompt-ids", "1"), 3, "runner.file", "no.cfg")
    refused(llama_runner("--config", tmp_path, "--prompt-ids", "1"), 3, "runner.file", "not a regular file")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999], ids=str)
def test_a_truncated_program(tiny_bundle, llama_runner, changed, share: float) -> None:
    bundle = tiny_bundle()
    config = changed(bundle, {})
    program = config.parent / "chunks" / "tiny_2.pte"
    content = program.read_bytes()
    program.write_bytes(content[: int(len(content) * share)])
    run = llama_runner("--config", config, "--prompt-ids", "1")
    refused(run, 3, "runner.load", "tiny_2.pte")


def test_not_a_number_is_an_error(tiny_bundle, llama_runner, changed) -> None:
    config = changed(tiny_bundle(), {})
    embedding = config.parent / "embedding.bin"
    content = bytearray(embedding.read_bytes())
    content[7 * 64 * 4 : 7 * 64 * 4 + 4] = b"\x00\x00\xc0\x7f"
    embedding.write_bytes(content)
    run = llama_runner("--config", config, "--prompt-ids", "5,7", "--max-new-tokens", "3")
    assert run.status == 5
    assert run.one("error")["code"] == "runner.execute"
    assert "not a number" in run.one("error")["message"]


def test_planned_inputs_and_outputs_are_refused(tiny_bundle, llama_runner, changed) -> None:
    """As ExecuTorch exports by default: such a program would copy inputs once and refuse the runner's memory for outputs."""
    hidden, mask, rotary, cache = (
        torch.zeros(1, 1, 64),
        torch.zeros(1, 1, 1, 25),
        torch.zeros(1, 2, 1, 16),
        torch.zeros(1, 2, 24, 16),
    )
    program = to_edge(torch.export.export(Passing(), (hidden, mask, rotary, cache, cache))).to_executorch()
    config = changed(tiny_bundle(), {"chunk.1.method.1.name": "forward", "chunk.1.method.1.path": "planned.pte"})
    (config.parent / "planned.pte").write_bytes(program.buffer)
    run = llama_runner("--config", config, "--prompt-ids", "1")
    refused(
        run, 4, "runner.tensor", "planned.pte, method 'forward': input 0 (hidden) has planned memory", "(value cache 0)"
    )


def test_other_types_are_refused(tiny_bundle, llama_runner, changed) -> None:
    hidden, mask, rotary = torch.zeros(1, 1, 64), torch.zeros(1, 1, 1, 25), torch.zeros(1, 2, 1, 16)
    cache = torch.zeros(1, 2, 24, 16, dtype=torch.float16)
    program = to_edge(torch.export.export(Passing(), (hidden, mask, rotary, cache, cache))).to_executorch()
    config = changed(tiny_bundle(), {"chunk.1.method.1.name": "forward", "chunk.1.method.1.path": "half.pte"})
    (config.parent / "half.pte").write_bytes(program.buffer)
    run = llama_runner("--config", config, "--prompt-ids", "1")
    refused(
        run,
        4,
        "runner.tensor",
        "(key cache 0) is float16 [1, 2, 24, 16], the configuration needs float32 [1, 2, 24, 16]",
    )


def test_termination_ends_at_once(native_build: Path, tiny_bundle, tmp_path: Path) -> None:
    """A reader that goes away or a SIGTERM ends the process; it does not run on."""
    command = [
        *(native_build / "runner" / "etcli_llama_runner", "--config", tiny_bundle().config),
        *("--prompt-ids", "1", "--max-new-tokens", "24"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert '"start"' in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) in (-signal.SIGTERM, 0)  # 0: it was done already
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "cannot write to stdout" in done.stderr
