"""What a recipe says of MediaTek's NPU: contradictions within it, and files that it names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from etcli.common.errors import EtcliError, Problem, RecipeError
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.schema import Recipe
from etcli.tables.socs import find_soc, unknown_soc_hint

DEFAULT_SPECS: Mapping[str, str] = {"gno": "LTS", "gno-exp": "", "gno-non-4d-tiling": "", "ImportForever": "1"}
"""Compile specs that ExecuTorch's own export of language models gives (`examples/mediatek/model_export_scripts/llama.py`). A recipe may give
them other values."""

RUNTIME_SPECS = frozenset({"ImportForever", "HighAddr"})
"""Compile specs that only the delegate reads: a single byte, 1 or 0."""

RESERVED_SPECS: Mapping[str, str] = {
    "platform-config": "it follows from neuron.platform",
    "ExtractSharedBlobKey": "it follows from the chunk",
    "relax-fp32": "ExecuTorch gives it always",
    "opt": "ExecuTorch gives it always, as 3",
    "dla-opt": "ExecuTorch gives it with shared weights",
}
"""Options that would be given twice, and why each is not for the recipe to say."""

Finding = tuple[str, str, str]
"""The key that a finding stands at, what is wrong, what to do."""

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
# ExecuTorch joins all options with blanks, and the compiler splits them there.
_VALUE = re.compile(r"[A-Za-z0-9_.,:=+/@%-]{0,256}")

_LARGEST_TEXT = 64 << 20


def platform_findings(recipe: Recipe) -> Iterator[Finding]:
    """A platform that is none."""
    if recipe.neuron is not None and find_soc(recipe.neuron.platform) is None:
        message = f"{recipe.neuron.platform[:80]!r} is not an SoC whose NPU is supported"
        yield "neuron.platform", message, unknown_soc_hint(recipe.neuron.platform)


def platform_remark(recipe: Recipe) -> str | None:
    """What to say of a platform whose facts are not ExecuTorch's own."""
    soc = find_soc(recipe.neuron.platform) if recipe.neuron is not None else None
    if soc is None or soc.certain:
        return None
    return f"neuron.platform: {soc.title}: ExecuTorch takes the id and names no phone for it"


def compile_spec_findings(recipe: Recipe) -> Iterator[Finding]:
    """Compile specs that are not for the recipe to give, and keys and values that are not one option's."""
    for key, value in (recipe.neuron.compile_specs if recipe.neuron is not None else {}).items():
        where = f"neuron.compile_specs.{key}" if key and "." not in key else "neuron.compile_specs"
        plain = key.lstrip("-").lower()
        reserved = next((name for name in RESERVED_SPECS if name.lower() == plain), None)
        spelt = next((name for name in (*DEFAULT_SPECS, *RUNTIME_SPECS) if name.lower() == plain), None)
        if reserved is not None:
            yield (
                where,
                f"compile spec {reserved} is not for a recipe to give: {RESERVED_SPECS[reserved]}",
                "Remove it.",
            )
        elif spelt is not None and spelt != key:
            yield where, f"compile spec {key[:80]!r} is written {spelt}", f"Write {spelt}."
        elif not _KEY.fullmatch(key):
            yield (
                where,
                f"{key[:80]!r} is no name of an option",
                "Write it without leading -- and without blanks, as gno-exp.",
            )
        elif key in RUNTIME_SPECS and value not in ("0", "1"):
            yield where, f'{key} is switched by "1" or "0", not {value[:40]!r}', f'Write {key}: "1", or "0".'
        elif not _VALUE.fullmatch(value):
            yield (
                where,
                f"the value {value[:80]!r} is not one word",
                "Options are joined by blanks: write one word, and further options as keys of their own.",
            )


def calibration_findings(recipe: Recipe) -> Iterator[Finding]:
    """Calibration of both kinds, of none, or of nothing."""
    calibration = recipe.neuron.calibration if recipe.neuron is not None else None
    if calibration is None:
        return
    if calibration.file is not None and calibration.prompts is not None:
        yield (
            "neuron.calibration.prompts",
            f"calibration is given twice, as file ({calibration.file[:80]}) and as prompts ({len(calibration.prompts)})",
            "To calibrate on the file, remove prompts; on the prompts, remove file. On the command line null removes what the recipe says: "
            "--set neuron.calibration.prompts=null",
        )
    elif calibration.file is None and calibration.prompts is None:
        yield "neuron.calibration", "calibration needs either file or prompts", "Write exactly one of the two."
    elif calibration.prompts is not None:
        if not calibration.prompts:
            yield "neuron.calibration.prompts", "there is no prompt in the list", "Write at least one."
        for index, prompt in enumerate(calibration.prompts):
            if not prompt.strip():
                yield (
                    f"neuron.calibration.prompts.{index}",
                    "the prompt is empty",
                    "Write what users will ask, or remove it.",
                )


def embedding_findings(recipe: Recipe) -> Iterator[Finding]:
    """A table that the NPU's programs, and ExecuTorch's runner, do not take."""
    if recipe.export.backend == "neuron" and recipe.export.embedding not in (None, "fp32"):
        yield (
            "export.embedding",
            f"backend neuron takes an embedding of fp32, not {recipe.export.embedding}: its programs' inputs are float32, quantised inside",
            "Remove the key.",
        )


def worker_findings(recipe: Recipe) -> Iterator[Finding]:
    """An interpreter for vendor's tools that are not used."""
    if recipe.export.python is None:
        return
    if recipe.export.backend != "neuron":
        yield (
            "export.python",
            f"backend {recipe.export.backend} is exported by etcli's own interpreter; another is for MediaTek's tools",
            "Remove the key, or set export.backend: neuron.",
        )


def neuron_problems(loaded: LoadedRecipe) -> tuple[Problem, ...]:
    """What is wrong with the files that the section names."""
    neuron = loaded.recipe.neuron
    if neuron is None or neuron.calibration is None or neuron.calibration.file is None:
        return ()
    key = "neuron.calibration.file"
    try:
        path = loaded.resolve_path(neuron.calibration.file)
    except EtcliError as error:
        return error.problems
    why, hint = None, "Give a text file with a prompt a line."
    try:
        if not path.exists():
            why, hint = f"there is no file {path}", f"Relative paths start at the recipe's folder, {loaded.base}."
        elif not path.is_file():
            why = f"{path} is no file"
        elif path.stat().st_size > _LARGEST_TEXT:
            why = f"{path} is larger than {_LARGEST_TEXT >> 20} MiB"
        elif not path.read_text(encoding="utf-8").strip():
            why = f"{path} is empty"
    except OSError as error:
        why, hint = f"{path} cannot be read: {error.strerror or error}", "Check its permissions."
    except UnicodeDecodeError:
        why = f"{path} is not UTF-8 text"
    if why is None:
        return ()
    place = loaded.location(key)
    return (
        RecipeError.problem(
            f"{key}: {why}", code="recipe.calibration", hint=hint, file=place.file, line=place.line, column=place.column
        ),
    )
