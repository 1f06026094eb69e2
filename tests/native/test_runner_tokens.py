"""The Llama runner's tokens are those of transformers, whatever the prompt length, the shapes and the backend."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import pytest
import torch

from etcli.llama.prefill import split_prompt

CACHE = 24


def prompt_of(length: int) -> list[int]:
    generator = torch.Generator().manual_seed(length)
    return torch.randint(1, 160, (length,), generator=generator).tolist()


def ids(values: list[int]) -> str:
    return ",".join(map(str, values))


BUNDLES = {
    "shift": {},
    "shift_portable": {"backend": "portable", "shapes": (CACHE, 4)},
    "shift_separate": {"shapes": (8,), "layout": "separate"},
    "ring": {"cache": "ring", "shapes": (12, 8, 3)},
    "ring_portable": {"cache": "ring", "backend": "portable", "shapes": (CACHE, 4)},
    "ring_separate": {"cache": "ring", "shapes": (8,), "layout": "separate"},
}


@pytest.mark.parametrize("name", BUNDLES)
def test_tokens_equal_transformers(tiny_bundle, llama_runner, name: str) -> None:
    """Prompts with and without padding, of one call or several, of one shape or up to three: every length that the cache holds for the
    bundles of one file a chunk with XNNPACK, the edges for the others.

    Caches are updated in place, so this is also the proof that both backends bear outputs in the memory of inputs, and that the
    weights which XNNPACK keeps once for all methods, of one file or of several, are the right ones for each.
    """
    bundle = tiny_bundle(**BUNDLES[name])
    for length in range(1, CACHE + 1) if name in ("shift", "ring") else (1, 4, 5, 7, 9, 17, CACHE):
        prompt, count = prompt_of(length), min(6, CACHE - length + 1)
        run = llama_runner("--config", bundle.config, "--prompt-ids", ids(prompt), "--max-new-tokens", str(count))
        assert run.status == 0, run.stderr
        assert run.tokens == bundle.greedy(prompt, count), f"prompt of {length} tokens"
        prefill = run.one("prefill")
        assert (prefill["tokens"], prefill["calls"]) == (length, len(split_prompt(length, [*bundle.shapes, 1])))
        assert run.one("stats")["stop_reason"] == "max_new_tokens"


@pytest.mark.parametrize("shape", [8, 3])
def test_a_single_prompt_shape(tiny_bundle, llama_runner, changed, shape: int) -> None:
    """The remainder first, left-padded, then full calls: lengths up to three calls."""
    bundle = tiny_bundle()
    other = {8: 3, 3: 8}[shape]
    dropped = {f"chunk.{k}.method.{other}.{key}": None for k in range(3) for key in ("path", "name")}
    config = changed(bundle, {"prompt_tokens": shape, **dropped})
    for length in range(1, min(3 * shape, CACHE) + 1):
        prompt, count = prompt_of(length), min(4, CACHE - length + 1)
        run = llama_runner("--config", config, "--prompt-ids", ids(prompt), "--max-new-tokens", str(count))
        assert run.tokens == bundle.greedy(prompt, count), f"prompt of {length} tokens"
        assert run.one("prefill")["calls"] == len(split_prompt(length, [shape, 1]))


def test_a_float16_embedding(tiny_bundle, llama_runner, changed) -> None:
    bundle = tiny_bundle()
    config = changed(bundle, {"embedding.dtype": "float16"})
    rounded = bundle.oracle.model.embed_tokens.weight.to(torch.float16)
    (config.parent / "embedding.bin").write_bytes(rounded.detach().numpy().tobytes())
    model = copy.deepcopy(bundle.oracle)
    model.model.embed_tokens.weight.data.copy_(rounded)
    prompt = prompt_of(6)
    run = llama_runner("--config", config, "--prompt-ids", ids(prompt), "--max-new-tokens", "9")
    assert run.tokens == dataclasses.replace(bundle, oracle=model).greedy(prompt, 9)


@pytest.mark.parametrize(("dtype", "group"), [("int8", 16), ("int8", 64), ("int4", 8), ("int4", 1)])
def test_a_quantised_embedding(tiny_bundle, llama_runner, changed, dtype: str, group: int) -> None:
    """Rows of scales and codes, packed here as the format says; transformers gets what they stand for."""
    bundle = tiny_bundle()
    least, most = {"int8": (-128, 127), "int4": (-8, 7)}[dtype]
    rows, cols = bundle.oracle.model.embed_tokens.weight.shape
    generator = torch.Generator().manual_seed(5)
    codes = torch.randint(least, most + 1, (rows, cols), generator=generator)
    scales = (0.5 + torch.rand(rows, cols // group, generator=generator)) * (0.25 / most)
    packed = (
        codes.to(torch.int8) if dtype == "int8" else ((codes[:, 1::2] + 8) * 16 + codes[:, ::2] + 8).to(torch.uint8)
    )
    config = changed(bundle, {"embedding.dtype": dtype, "embedding.group_size": group})
    (config.parent / "embedding.bin").write_bytes(
        b"".join(scales[row].numpy().tobytes() + packed[row].numpy().tobytes() for row in range(rows))
    )
    model = copy.deepcopy(bundle.oracle)
    model.model.embed_tokens.weight.data.copy_(codes * scales.repeat_interleave(group, dim=1))
    prompt = prompt_of(6)
    run = llama_runner("--config", config, "--prompt-ids", ids(prompt), "--max-new-tokens", "9")
    assert run.status == 0, run.stderr
    assert run.tokens == dataclasses.replace(bundle, oracle=model).greedy(prompt, 9)


@pytest.mark.parametrize("cache", ["shift", "ring"])
def test_decoding_ends_when_every_place_of_the_cache_is_used(tiny_bundle, llama_runner, cache: str) -> None:
    bundle = tiny_bundle(**BUNDLES[cache])
    for length in (1, 20, CACHE):
        prompt = prompt_of(length)
        run = llama_runner("--config", bundle.config, "--prompt-ids", ids(prompt), "--max-new-tokens", "1000")
        assert run.status == 0, run.stderr
        stats = run.one("stats")
        assert stats["stop_reason"] == "cache_full"
        assert stats["new_tokens"] == CACHE - length + 1
        assert run.tokens == bundle.greedy(prompt, CACHE - length + 1)


def test_any_stop_id_ends_the_run_and_is_reported(tiny_bundle, llama_runner, changed) -> None:
    bundle = tiny_bundle()
    prompt = prompt_of(5)
    free = bundle.greedy(prompt, 10)
    # the fourth new token as a stop id beside one that never comes; and the very first token, which prefill gives
    for stop in (free[3], free[0]):
        absent = next(id_ for id_ in range(160) if id_ not in free)
        config = changed(bundle, {"stop_ids": f"{absent},{stop}"})
        run = llama_runner("--config", config, "--prompt-ids", ids(prompt), "--max-new-tokens", "10")
        assert run.tokens == free[: free.index(stop) + 1] == bundle.greedy(prompt, 10, [absent, stop])
        assert run.one("stats")["stop_reason"] == "stop_id"
        ignored = llama_runner(
            "--config", config, "--prompt-ids", ids(prompt), "--max-new-tokens", "10", "--ignore-stop-ids"
        )
        assert ignored.tokens == free


def test_threads_change_nothing_but_speed(tiny_bundle, llama_runner) -> None:
    bundle = tiny_bundle()
    prompt = prompt_of(7)
    expected = bundle.greedy(prompt, 9)
    for threads in (1, 2, 3):
        run = llama_runner(
            *("--config", bundle.config, "--prompt-ids", ids(prompt)),
            *("--max-new-tokens", "9", "--threads", str(threads)),
        )
        assert run.one("loaded")["threads"] == threads
        assert run.tokens == expected


def test_the_prompt_from_a_file(tiny_bundle, llama_runner, tmp_path: Path) -> None:
    bundle = tiny_bundle()
    prompt = prompt_of(5)
    file = tmp_path / "ids.txt"
    file.write_text("\n".join(map(str, prompt[:3])) + "\n" + ", ".join(map(str, prompt[3:])) + "\n")
    run = llama_runner("--config", bundle.config, "--prompt-ids-file", file, "--max-new-tokens", "4")
    assert run.tokens == bundle.greedy(prompt, 4)


def test_events_in_order_with_true_counts(tiny_bundle, llama_runner) -> None:
    bundle = tiny_bundle()
    run = llama_runner("--config", bundle.config, "--prompt-ids", ids(prompt_of(6)), "--max-new-tokens", "3")
    assert [event["event"] for event in run.events] == [
        "start",
        "loaded",
        "prefill",
        "token",
        "token",
        "token",
        "stats",
    ]
    start, loaded, prefill, stats = (run.one(name) for name in ("start", "loaded", "prefill", "stats"))
    assert (start["protocol"], start["runner"]) == (1, "etcli_llama_runner")
    assert type(start["pid"]) is int
    assert start["pid"] > 0
    assert (loaded["chunks"], loaded["cache"]) == (3, "shift")
    assert loaded["huge_page_bytes"] >= 0
    tokens = [event for event in run.events if event["event"] == "token"]
    assert [event["index"] for event in tokens] == [0, 1, 2]
    times = [event["t_s"] for event in tokens]
    assert 0 < prefill["seconds"] <= times[0] < times[1] < times[2]
    assert len(prefill["chunk_seconds"]) == 3
    assert min(prefill["chunk_seconds"]) > 0
    assert sum(prefill["chunk_seconds"]) <= prefill["seconds"]
    assert (stats["prompt_tokens"], stats["new_tokens"], stats["decode_steps"]) == (6, 3, 2)
    assert stats["load_s"] == loaded["load_s"] > 0
    # the rates follow from the counts and the times: prompt tokens without padding, one step fewer than tokens
    assert stats["prefill_tokens_per_s"] == pytest.approx(6 / stats["prefill_s"])
    assert stats["decode_tokens_per_s"] == pytest.approx(2 / stats["decode_s"])
    assert prefill["seconds"] < stats["time_to_first_token_s"] <= times[0]  # the token is chosen behind the prompt
    assert len(stats["chunk_seconds"]) == 3
    assert 0 < sum(stats["chunk_seconds"]) <= stats["decode_s"]
    assert stats["peak_memory_bytes"] >= loaded["memory_bytes"] > 1_000_000


def test_one_token_has_no_decode_rate(tiny_bundle, llama_runner) -> None:
    run = llama_runner("--config", tiny_bundle().config, "--prompt-ids", "5", "--max-new-tokens", "1")
    stats = run.one("stats")
    assert (stats["new_tokens"], stats["decode_steps"], stats["decode_tokens_per_s"]) == (1, 0, None)


def test_check_loads_and_runs_nothing(tiny_bundle, llama_runner) -> None:
    run = llama_runner("--config", tiny_bundle().config, "--check")
    assert run.status == 0, run.stderr
    assert [event["event"] for event in run.events] == ["start", "loaded"]
