"""The native runners built with sanitizers, and small random bundles to run with them.

The bundles are put together here from chunks alone, so that these tests judge the runner and not the export stage; what they must say
is told by transformers.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from etcli.export.backends.registry import BACKENDS
from etcli.llama.caches import empty_caches
from etcli.llama.chunk import Chunk
from etcli.llama.mask import additive_mask
from etcli.llama.rope import rope_table, rotary_input
from etcli.manifests.model import ModelConfig, RopeConfig

REPOSITORY = Path(__file__).parents[2]
VOCABULARY = 160
CACHE = 24
LAYERS = (2, 1, 1)
"""Layers of each chunk: unequal on purpose, and a number of chunks that ends on either hidden buffer."""


@dataclass(frozen=True)
class Run:
    """What a program did: exit status, events, stderr."""

    status: int
    events: list[dict[str, Any]]
    stderr: str

    def one(self, name: str) -> dict[str, Any]:
        """The only event of this name."""
        (event,) = [event for event in self.events if event["event"] == name]
        return event

    @property
    def tokens(self) -> list[int]:
        return [event["id"] for event in self.events if event["event"] == "token"]


def run_program(program: Path, *arguments: str | Path, emulator: Sequence[str] = ()) -> Run:
    """Run a native program; every line of its stdout has to be JSON."""
    done = subprocess.run(
        [*emulator, str(program), *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False
    )
    return Run(done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Only one of several test processes at a time."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def cmake(*arguments: str | Path) -> str:
    """Run the cmake of this Python environment, return its output; its failure is the test's."""
    folder = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": folder + os.pathsep + os.environ["PATH"]}
    done = subprocess.run(
        ["cmake", *map(str, arguments)], capture_output=True, text=True, env=environment, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="session")
def native_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build folder of native/ for this machine, sanitizers on; shared by the processes of a parallel test run."""
    import executorch

    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    package = Path(next(iter(executorch.__path__)))
    folder = shared / "native-build"
    with _alone(shared / "native-build.lock"):
        if not (folder / "done").exists():
            cmake(
                *("-S", REPOSITORY / "native", "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug"),
                *("-DETCLI_SANITIZE=ON", f"-Dexecutorch_DIR={package / 'lib/cmake/executorch'}"),
            )
            cmake("--build", folder)
            (folder / "done").touch()
    return folder


@pytest.fixture(scope="session")
def llama_runner(native_build: Path) -> Callable[..., Run]:
    """`llama_runner(*arguments)` runs etcli_llama_runner."""
    return lambda *arguments: run_program(native_build / "runner" / "etcli_llama_runner", *arguments)


@pytest.fixture(scope="session")
def executor_runner(native_build: Path) -> Callable[..., Run]:
    """`executor_runner(*arguments)` runs etcli_executor_runner."""
    return lambda *arguments: run_program(native_build / "runner" / "etcli_executor_runner", *arguments)


@dataclass(frozen=True)
class TinyBundle:
    """A bundle of a random network, and the transformers model of the same weights."""

    folder: Path
    shapes: tuple[int, ...]
    oracle: LlamaForCausalLM

    @property
    def config(self) -> Path:
        return self.folder / "runner.cfg"

    def greedy(self, prompt: Sequence[int], count: int, stop_ids: Sequence[int] = ()) -> list[int]:
        """What transformers generates, a stop id included."""
        with torch.no_grad():
            output = self.oracle.generate(
                torch.tensor([list(prompt)]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                do_sample=False,
                max_new_tokens=count,
                eos_token_id=list(stop_ids) or None,
                pad_token_id=0,
            )
        return output[0, len(prompt) :].tolist()


def oracle(seed: int) -> LlamaForCausalLM:
    """A random network whose weights all matter, on both sides of grouped-query attention."""
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=112,
        num_hidden_layers=sum(LAYERS),
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=VOCABULARY,
        max_position_embeddings=256,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = name.endswith("norm.weight")
            parameter.normal_(std=0.3 if is_norm else 0.12).add_(1.0 if is_norm else 0.0)
    return model


def _fill(chunk: Chunk, weights: dict[str, torch.Tensor]) -> None:
    for name, source in chunk.canonical_names().items():
        owner, _, leaf = name.rpartition(".")
        setattr(chunk.get_submodule(owner), leaf, torch.nn.Parameter(weights[source].clone(), requires_grad=False))


def write_bundle(folder: Path, model: LlamaForCausalLM, backend: str, shapes: tuple[int, ...]) -> None:
    """Export `model` in chunks of `LAYERS` and write the configuration, without stop ids."""
    hf = model.config
    config = ModelConfig(
        architecture="LlamaForCausalLM",
        hidden_size=hf.hidden_size,
        intermediate_size=hf.intermediate_size,
        num_layers=hf.num_hidden_layers,
        num_heads=hf.num_attention_heads,
        num_kv_heads=hf.num_key_value_heads,
        head_dim=hf.head_dim,
        vocab_size=hf.vocab_size,
        context_length=hf.max_position_embeddings,
        rms_norm_eps=hf.rms_norm_eps,
        rope=RopeConfig(theta=10000.0),
        tied_embeddings=False,
    )
    weights = model.state_dict()
    table = rope_table(config.rope, config.head_dim, CACHE)
    (folder / "chunks").mkdir(parents=True)
    (folder / "rope_float32.bin").write_bytes(table.numpy().tobytes())
    (folder / "embedding.bin").write_bytes(weights["model.embed_tokens.weight"].numpy().tobytes())
    lines = [
        "schema_version=1",
        "name=tiny",
        "cache=shift",
        f"hidden_size={config.hidden_size}",
        f"head_dim={config.head_dim}",
        f"num_kv_heads={config.num_kv_heads}",
        f"num_layers={config.num_layers}",
        f"vocab_size={config.vocab_size}",
        f"cache_length={CACHE}",
        f"prompt_tokens={','.join(map(str, shapes))}",
        "stop_ids=",
        "pad_id=0",
        "embedding.path=embedding.bin",
        "embedding.dtype=float32",
        f"embedding.rows={config.vocab_size}",
        f"embedding.cols={config.hidden_size}",
        "rope.path=rope_float32.bin",
        f"rope.positions={CACHE}",
        f"chunks={len(LAYERS)}",
    ]
    for k, layers in enumerate(LAYERS):
        chunk = Chunk(config, sum(LAYERS[:k]), layers, head=k + 1 == len(LAYERS)).eval()
        _fill(chunk, weights)
        programs = {}
        lines.append(f"chunk.{k}.layers={layers}")
        for tokens in (*shapes, 1):
            name = f"tiny_{tokens}t{CACHE}c_{k}"
            example = (
                torch.zeros(1, tokens, config.hidden_size),
                additive_mask(tokens, CACHE, 0),
                rotary_input(table, 0, tokens),
                *empty_caches(config, layers, CACHE),
            )
            programs[name] = torch.export.export(chunk, example)
            lines += [f"chunk.{k}.method.{tokens}.path=chunks/tiny_{k}.pte", f"chunk.{k}.method.{tokens}.name={name}"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = BACKENDS[backend].lower(programs)
        (folder / "chunks" / f"tiny_{k}.pte").write_bytes(program.buffer)
    (folder / "runner.cfg").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., TinyBundle]:
    """`tiny_bundle()` is an XNNPACK bundle with two prompt shapes, `tiny_bundle("portable")` has one that fills the cache; made once."""
    shapes = {"xnnpack": (8, 3), "portable": (CACHE, 4)}
    made: dict[str, TinyBundle] = {}

    def make(backend: str = "xnnpack") -> TinyBundle:
        if backend not in made:
            model = oracle(seed=3)
            folder = tmp_path_factory.mktemp("bundle") / "bundle"
            write_bundle(folder, model, backend, shapes[backend])
            made[backend] = TinyBundle(folder, shapes[backend], model)
        return made[backend]

    return make


@pytest.fixture
def changed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`changed(bundle, {key: value})` gives the configuration of a copy with some keys set, or left out for None."""

    def change(bundle: TinyBundle, values: dict[str, object]) -> Path:
        folder = tmp_path_factory.mktemp("changed") / "bundle"
        shutil.copytree(bundle.folder, folder)
        pairs = dict(line.split("=", 1) for line in bundle.config.read_text().splitlines())
        for key, value in values.items():
            pairs.pop(key, None)
            if value is not None:
                pairs[key] = str(value)
        config = folder / "runner.cfg"
        config.write_text("".join(f"{key}={value}\n" for key, value in pairs.items()))
        return config

    return change
