"""Compiling a chunk's methods, so that it is known which of them the vendor's converter and compiler were at when they gave up."""

from __future__ import annotations

import contextlib
import importlib.metadata
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from etcli.common.errors import ExportError
from etcli.export.backends.neuron import compile_specs, lower_neuron
from etcli.export.failures import for_a_report
from etcli.export.job import COMPILE_STEP, COMPILER_FAILED, STEP_MARK, ChunkWork

if TYPE_CHECKING:
    from executorch.exir import ExecutorchProgramManager
    from torch.export import ExportedProgram


def compiled(programs: Mapping[str, ExportedProgram], work: ChunkWork, shared_key: str) -> ExecutorchProgramManager:
    """All methods compiled for the NPU that `work` names; the vendor's packages are at hand.

    Raises:
        ExportError: `neuron.compiler_failed`, naming chunk and method, with what the vendor's tool said.
    """
    npu = work.npu
    assert npu is not None  # noqa: S101 - only a work for the NPU comes here
    specs = compile_specs(npu.platform, shared_key=shared_key if npu.shared else None, additions=npu.compile_specs)
    at: list[str] = []
    with _announced(at.append):
        try:
            return lower_neuron(programs, specs)
        except MemoryError:
            raise
        except Exception as error:
            if not at:
                raise
            raise ExportError(
                f"chunk {work.index}: {at[-1]} cannot be compiled for {npu.platform}: {reason_of(error)}",
                code=COMPILER_FAILED,
                hint=f"Finished chunks are kept. {for_a_report(work)}",
            ) from error


def reason_of(error: Exception) -> str:
    """What an error of the vendor's tools says last, which is why they gave up."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:500] if lines else type(error).__name__


@contextlib.contextmanager
def _announced(begin: Callable[[str], None]) -> Iterator[None]:
    """Within the block every method that goes to converter and compiler is a step of the worker's, and `begin` is told its name.

    ExecuTorch throws away what they print in Python; here it goes to the worker's log, with their versions and the compiler's options.
    """
    from executorch.backends.mediatek import preprocess

    backend: Any = preprocess.NeuropilotBackend
    many, one = backend.__dict__["preprocess_multimethod"], backend.__dict__["preprocess"]
    library, compiler = preprocess.contextlib, preprocess.mtk_neuron
    waiting: list[str] = []

    def preprocess_multimethod(cls: Any, edge_programs: Mapping[str, list[Any]], specs: Any) -> Any:
        waiting.extend(name for name, partitions in edge_programs.items() for _ in partitions)
        return many.__func__(cls, edge_programs, specs)

    def preprocess_one(cls: Any, program: Any, specs: Any) -> Any:
        at(waiting.pop(0))
        return one.__func__(cls, program, specs)

    def at(what: str) -> None:
        begin(what)
        print(f"{STEP_MARK}{COMPILE_STEP} {what}", file=sys.__stdout__, flush=True)

    def compile_told(mlir: Any, options: str) -> Any:
        print(f"compiling with {_versions()}: {options}", file=sys.__stderr__, flush=True)
        return compiler.compile(mlir, options)

    def extract_shared_data(*models: Any, **options: Any) -> Any:
        at("the weights that its methods share")
        return compiler.extract_shared_data(*models, **options)

    backend.preprocess_multimethod = classmethod(preprocess_multimethod)
    backend.preprocess = classmethod(preprocess_one)
    preprocess.mtk_neuron = types.SimpleNamespace(compile=compile_told, extract_shared_data=extract_shared_data)
    preprocess.contextlib = types.SimpleNamespace(redirect_stdout=lambda _: contextlib.redirect_stdout(sys.__stderr__))
    try:
        yield
    finally:
        backend.preprocess_multimethod, backend.preprocess = many, one
        preprocess.contextlib, preprocess.mtk_neuron = library, compiler


def _versions() -> str:
    """Those of the vendor's packages, as they or their wheels say, and of ExecuTorch."""
    found = []
    for name in ("mtk_converter", "mtk_neuron", "executorch"):
        said = getattr(sys.modules.get(name), "__version__", None)
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            said = said or importlib.metadata.version(name)
        found.append(f"{name} {said or 'of unknown version'}")
    return ", ".join(found)
