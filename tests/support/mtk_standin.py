"""A STAND-IN for ExecuTorch's `mtk_llama_executor_runner`: same flags, files, output, log lines and exit statuses, on this machine's CPU.

It is written from the contract of the real one (ExecuTorch at cff6f4dd32), shares no code with etcli, and differs in one thing: where the real one trusts a
flag, this one compares it with the files and ends with status 3 and a line that begins with "STAND-IN". It computes with ExecuTorch's Python
runtime, and encodes with ExecuTorch's own tokenizers. Imports nothing of etcli.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

FLAGS: dict[str, Any] = {
    "prompt_token_batch_size": 128,
    "cache_size": 1024,
    "hidden_size": 4096,
    "num_head": 32,
    "num_layer": 32,
    "head_dim": 0,
    "window_size": 0,
    "max_token_length": 2048,
    "partial_rotary_factor": 1.0,
    "rot_emb_base": 10000.0,
    "input_type": "int16",
    "output_type": "int16",
    "cache_type": "int16",
    "mask_type": "int16",
    "rot_emb_type": "int16",
    "token_embedding_path": "embedding.bin",
    "prompt_model_paths": "",
    "gen_model_paths": "",
    "model_package_paths": "",
    "tokenizer_path": "tokenizer.model",
    "tokenizer_type": "tiktoken",
    "vocab_size": 128000,
    "bos_token": 128000,
    "eos_token": 128001,
    "max_response": 50,
    "prompt_file": "",
}
WIDTHS = {"fp32": 4, "fp16": 2, "int16": 2}
STARTED = time.monotonic()


def log(level: str, text: str) -> None:
    spent = time.monotonic() - STARTED
    print(f"{level} 00:00:{spent:09.6f} executorch:standin.cpp:1] {text}", file=sys.stderr, flush=True)


def check(condition: object, text: str) -> None:
    """ET_CHECK: the real program aborts."""
    if not condition:
        log("F", text)
        sys.stdout.flush()
        os.abort()


def differs(text: str) -> NoReturn:
    """What the real program would not notice."""
    print(f"STAND-IN: {text}", file=sys.stderr, flush=True)
    os._exit(3)


def parse(words: list[str]) -> dict[str, Any]:
    """As gflags does: `--x=v`, `--x v`, one dash or two, the last one wins, `--flagfile`."""
    values = dict(FLAGS)
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        match = re.fullmatch(r"--?([a-z_]+)(?:=(.*))?", word, re.DOTALL)
        if match is None:
            log("E", f"Extra commandline args: {word}")
            sys.exit(1)
        name, text = match[1], match[2] if match[2] is not None else waiting.pop(0)
        if name == "flagfile":
            waiting = [
                line for line in Path(text).read_text().splitlines() if line and not line.startswith("#")
            ] + waiting
            continue
        if name not in FLAGS:
            print(f"ERROR: unknown command line flag '{name}'", file=sys.stderr)
            sys.exit(1)
        kind = type(FLAGS[name])
        if kind is int and not re.fullmatch("[0-9]+", text):
            print(f"ERROR: illegal value '{text}' specified for uint64 flag '{name}'", file=sys.stderr)
            sys.exit(1)
        values[name] = kind(text)
    return values


class Tokens:
    """The real program's three readers, through ExecuTorch's own library of them."""

    def __init__(self, kind: str, path: str) -> None:
        import pytorch_tokenizers as readers  # type: ignore[import-untyped]

        check(kind in ("bpe", "tiktoken", "hf"), f"Invalid tokenizer type: {kind}")
        if kind == "tiktoken":
            special = ["<|begin_of_text|>", "<|end_of_text|>"]
            special += [
                "<|reserved_special_token_0|>",
                "<|reserved_special_token_1|>",
                "<|finetune_right_pad_id|>",
                "<|step_id|>",
            ]
            special += ["<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"]
            special += [f"<|reserved_special_token_{n}|>" for n in range(2, 2 + 256 - len(special))]
            self.reader = readers.CppTiktoken(special, 0, 1)
        else:
            self.reader = (readers.CppLlama2cTokenizer if kind == "bpe" else readers.CppHFTokenizer)()
        try:
            self.reader.load(path)
        except Exception as error:  # the real program drops the result
            print(f"I tokenizers:standin.cpp:1] {error}", file=sys.stderr)

    def encode(self, text: str) -> list[int] | None:
        try:
            return list(self.reader.encode(text, 1, 0)) if self.reader.is_loaded() else None
        except Exception:
            return None


class Chunks:
    """The programs of one size of call, with the buffers that every size shares."""

    def __init__(self, paths: list[str], tokens: int) -> None:
        import torch  # noqa: F401 - the module below links its libraries
        from executorch.extension.pybindings import _C

        self.methods = []
        for path in paths:
            check(Path(path).is_file(), f"Failed to open {path}")
            program = _C._load_program(path, enable_etdump=False, debug_buffer_size=0)
            names = [program.get_method_name(index) for index in range(program.num_methods())]
            matching = [name for name in names if re.search(r"\d+t\d+c", name)]
            check(all(len(re.findall(r"\d+t\d+c", name)) == 1 for name in matching), "Invalid method name")
            fitting = [name for name in matching if int(re.findall(r"(\d+)t\d+c", name)[0]) == tokens]
            if not fitting:
                log("E", f"No method for {tokens} tokens")
                fitting = sorted(names)[:1]
            method = program.load_method(fitting[0])
            self.methods.append((method, method.method_meta(), program))


class Model:
    """The network as the real program holds it: a cache of the last C tokens, positions from 0, the prompt's first call padded on the left."""

    def __init__(self, flags: dict[str, Any]) -> None:
        import numpy as np

        self.np, self.flags = np, flags
        packages, prompts, gens = (
            [path for path in flags[name].split(",") if path]
            for name in ("model_package_paths", "prompt_model_paths", "gen_model_paths")
        )
        check(not packages or not (prompts or gens), "Both package and separate paths are given")
        if not packages and not prompts:
            log("I", "No prompt model paths provided, overriding prompt_token_batch_size to 1")
            flags["prompt_token_batch_size"] = 1
        check(packages or gens, "No model to initialize")
        for name in ("input_type", "output_type", "cache_type", "mask_type", "rot_emb_type"):
            if flags[name] not in WIDTHS:
                os.kill(os.getpid(), signal.SIGFPE)
            if flags[name] != "fp32":
                differs(f"{name} is {flags[name]}, the programs' tensors are fp32")
        check(Path(flags["token_embedding_path"]).is_file(), "Failed to open the embedding")
        self.batch = flags["prompt_token_batch_size"]
        raw = Path(flags["token_embedding_path"]).read_bytes()
        hidden = flags["hidden_size"]
        if len(raw) % (4 * hidden):
            differs(f"{len(raw)} bytes are no whole rows of {hidden} floats")
        self.rows = np.frombuffer(raw, "<f4").reshape(-1, hidden)
        count = len(packages or gens)
        if flags["num_layer"] % count:
            differs(f"{count} chunks for {flags['num_layer']} layers")
        self.layers = flags["num_layer"] // count
        self.dim = int((flags["head_dim"] or hidden // flags["num_head"]) * flags["partial_rotary_factor"])
        self.chunks = {
            tokens: Chunks(packages or (gens if tokens == 1 else prompts), tokens) for tokens in {self.batch, 1}
        }
        self.caches: list[list[Any]] | None = None
        self.seen = 0
        # float32 throughout, as the real table
        base, half = np.float32(flags["rot_emb_base"]), np.arange(self.dim // 2, dtype=np.float32)
        frequency = np.float32(1) / base ** (2 * half / np.float32(self.dim))
        angle = np.arange(flags["max_token_length"], dtype=np.float32)[:, None] * frequency.astype(np.float32)
        angle = np.concatenate([angle, angle], axis=1)
        self.cos, self.sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)

    def run(self, ids: list[int], batch: int) -> Any:
        """The logits row of the last of `ids`."""
        import torch

        np, cache = self.np, self.flags["cache_size"]
        check(all(token < len(self.rows) for token in ids), "Token id is out of range")
        if self.seen + len(ids) > self.flags["max_token_length"]:
            differs("positions beyond the rotary table")
        if batch > cache:
            differs("T is larger than the cache, and memory would be overwritten")
        padding = batch - len(ids)
        hidden = self.rows[[0] * padding + ids][None]
        mask = np.full((1, 1, batch, cache + batch), -100, np.float32)
        for row in range(padding, batch):
            mask[..., row, cache - min(cache, self.seen) : cache] = 0
            mask[..., row, cache + padding : cache + row + 1] = 0
        rotary = np.zeros((1, 2, batch, self.dim), np.float32)
        place = slice(self.seen, self.seen + len(ids))
        rotary[0, 0, padding:], rotary[0, 1, padding:] = self.cos[place], self.sin[place]
        given = torch.from_numpy(hidden.copy())
        fresh = self.caches is None
        caches = self.caches or []
        for index, (method, facts, _) in enumerate(self.chunks[batch].methods):
            count = (facts.num_inputs(), facts.num_outputs())
            check(count == (3 + 2 * self.layers, 1 + 2 * self.layers), f"Wrong number of inputs or outputs: {count}")
            sizes = [tuple(facts.input_tensor_meta(i).sizes()) for i in range(facts.num_inputs())]
            expected = [tuple(given.shape), mask.shape, rotary.shape]
            if sizes[:3] != expected or any(size[2] != cache for size in sizes[3:]):
                differs(f"{facts.name()} has inputs {sizes}, the flags make {expected} and caches of {cache}")
            if fresh:
                caches.append([torch.zeros(size) for size in sizes[3:]])
            given, *after = (
                out.clone() for out in method([given, torch.from_numpy(mask), torch.from_numpy(rotary), *caches[index]])
            )
            if padding:
                for tensor in after:
                    tensor[:, :, cache - batch : cache - batch + padding] = 0
            caches[index] = after
        self.caches = caches
        self.seen += len(ids)
        return given[0, -1].numpy()


def main() -> None:
    flags = parse(sys.argv[1:])
    log("I", "Begin model loading.")
    tokens = Tokens(flags["tokenizer_type"], flags["tokenizer_path"])
    model = Model(flags)
    log("I", "Model initialized.")
    check(flags["prompt_file"], "No prompt file provided.")
    file = Path(flags["prompt_file"])
    prompt = file.read_bytes().decode("utf-8", "surrogateescape") if file.is_file() else ""
    ids = tokens.encode(prompt)
    if not ids:
        return
    out = sys.stdout
    out.reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")  # type: ignore[union-attr]
    out.write(f"\n[Input Prompt]\n{prompt}\n\n[Input Prompt Tokens]\n{{{', '.join(map(str, ids))}}}\n")
    size = tokens.reader.vocab_size()
    row: Any = None
    started, at = time.monotonic(), 0
    while at < len(ids):
        step = (len(ids) - at) % model.batch or model.batch
        row = model.run(ids[at : at + step], model.batch)
        at += step
    spent = time.monotonic() - started
    if size > len(row):
        differs(f"the tokenizer has {size} ids, there are {len(row)} logits")
    log("I", f"Done analyzing prompt in {spent:f} sec ({-(-len(ids) // model.batch) * model.batch / spent:f} tok/s)")
    generated = [int(row[:size].argmax())]
    log("I", "Model swapped.")
    text = decoded(tokens, generated[-1])
    out.write(f"\n[Real-time Response]\n{text}")
    steps, spent = 0, 0.0
    while steps < flags["max_response"] and model.seen < flags["max_token_length"]:
        steps += 1
        started = time.monotonic()
        row = model.run(generated[-1:], 1)
        spent += time.monotonic() - started
        generated.append(int(row[:size].argmax()))
        if generated[-1] == tokens.reader.eos_tok():
            out.write("</eos>")
            break
        out.write(decoded(tokens, generated[-1]))
    else:
        steps += 1  # the real program's counter
    out.write(f"\n\n[Generated Tokens]\n{{{', '.join(map(str, generated))}}}\n")
    out.flush()
    log("I", f"Token generation speed: {steps / spent:f} tok/s" if spent else "Token generation speed: inf tok/s")
    log("I", "Model released.")


def decoded(tokens: Tokens, token: int) -> str:
    try:
        return str(tokens.reader.decode(token))
    except UnicodeDecodeError:  # half a character, which the real program prints as it is
        return "\udc80"
    except Exception:
        log("E", f"Tokenizer failed to decode generated token {token}")
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
