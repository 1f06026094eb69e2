"""The contenders of aqlm_kernels.py: our kernels, the straightforward loop, and the `aqlm` package's kernel for CPUs.

A library. The C++ ones are compiled with the host target's compiler into the cache folder; the package comes from the Python environment or
else, by itself, from the package registry into the cache folder (its kernel needs numba, and nothing of what else the package needs).
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import Any, Protocol

import torch

from etcli.common.assets import asset_dir
from etcli.common.hashing import file_sha256, value_sha256
from etcli.common.workspace import cache_dir
from etcli.tables.operators import read_operators
from etcli.tables.targets import load_targets
from etcli.toolchain.compilers import verify

AQLM = "1.1.7"
NUMBA = ("numba==0.68.1", "llvmlite==0.50.0")
LOOP_FLAGS = {"native": ("-march=native",), "avx2": ("-mavx2", "-mfma")}
_FLAGS = ("-std=c++17", "-O3", "-DNDEBUG", "-fPIC", "-fopenmp")
_HERE = Path(__file__).parent


class Case(Protocol):
    """Arrays of one product; `codes` is a copy that takes its turn."""

    input: torch.Tensor
    codebooks: torch.Tensor
    scales: torch.Tensor
    out: torch.Tensor


Product = Callable[[torch.Tensor], object]
"""Computes with these codes, int8 [in/8, out, 2]."""


class Kernels:
    """Our kernels in every version that this CPU has."""

    def __init__(self) -> None:
        library = read_operators(asset_dir("native") / "aqlm")
        folder = library.root
        special = library.special(verify(load_targets()["host"]).triple)
        # What the binding to PyTorch is made of besides itself: the sources that know nothing of ExecuTorch.
        sources: dict[Path, Sequence[str]] = {folder / name: () for name in library.torch if name in library.sources}
        sources |= {folder / name: flags for name, flags in special.items()}
        sources[folder / "tests" / "bench_library.cpp"] = ()
        self._library = ctypes.CDLL(str(compiled("kernels", sources, (folder,))))
        names = self._library.aqlm_bench_versions
        names.restype = ctypes.c_char_p
        self.versions: tuple[str, ...] = tuple(names().decode().split(","))

    def product(self, version: str, case: Case, threads: int) -> Product:
        """`case` by one version; raises RuntimeError where it refuses."""
        run = self._library.aqlm_bench_run
        head = (ctypes.c_char_p(version.encode()), ctypes.c_int(threads), *_sizes(case))

        def product(codes: torch.Tensor) -> None:
            if run(*head, *_pointers(case, codes)) != 0:
                raise RuntimeError(f"version {version} refuses the product")

        return product


class Loop:
    """The straightforward loop, compiled with one set of `LOOP_FLAGS`."""

    def __init__(self, flags: str) -> None:
        sources = {_HERE / "aqlm_loop.cpp": LOOP_FLAGS[flags]}
        folder = asset_dir("native") / "aqlm"
        self._run = ctypes.CDLL(str(compiled(f"loop-{flags}", sources, (folder / "tests", folder)))).aqlm_loop_run
        self._run.restype = None

    def product(self, case: Case, threads: int) -> Product:
        """`case` by the loop, outputs split over the threads."""
        head = (ctypes.c_int(threads), *_sizes(case))
        return lambda codes: self._run(*head, *_pointers(case, codes))


class Package:
    """The package's numba kernel on one thread, the only number on which its results are right."""

    def __init__(self) -> None:
        found = _package()
        path = next(
            Path(str(file.locate()))
            for file in found.files or ()
            if file.match("aqlm/inference_kernels/numba_kernel.py")
        )
        # Read when they are loaded: threads of numba's loops, and of its matrix products, which are SciPy's.
        os.environ |= {"NUMBA_NUM_THREADS": "1", "NUMBA_THREADING_LAYER": "omp", "OPENBLAS_NUM_THREADS": "1"}
        numba: Any = importlib.import_module("numba")
        numba.set_num_threads(1)
        self.what = f"aqlm {found.version}, numba {numba.__version__}"
        # By itself, since the package's own import wants transformers and accelerate.
        spec = importlib.util.spec_from_file_location("aqlm_numba_kernel", path)
        if spec is None or spec.loader is None:
            raise PackageNotFoundError("aqlm")
        module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self._kernel = module.numba_gemm_lut

    def product(self, case: Case) -> Product:
        """`case` as the package's linear layer computes it once it has brought its codes into this order."""
        return lambda codes: self._kernel(case.input, codes, case.codebooks, case.scales, None)


def package() -> tuple[Package | None, str]:
    """The package's kernel and what it is, or None and why it is not to be had."""
    try:
        found = Package()
    except (PackageNotFoundError, ImportError, StopIteration, subprocess.CalledProcessError) as error:
        told = str(getattr(error, "stderr", "") or error).strip().splitlines()
        return None, f"aqlm[cpu] {AQLM} is not installed: {told[-1] if told else type(error).__name__}"
    return found, found.what


def compiled(name: str, sources: Mapping[Path, Sequence[str]], includes: Sequence[Path]) -> Path:
    """A shared library of C++ sources with flags of their own each, compiled unless the cache has it.

    Raises:
        ToolError: there is no compiler.
        subprocess.CalledProcessError: one does not compile.
    """
    compiler = verify(load_targets()["host"])
    headers = sorted({path for folder in includes for pattern in ("*.h", "*.inc") for path in folder.glob(pattern)})
    key = value_sha256(
        {
            "compiler": [compiler.stamp, *_FLAGS],
            "processor": _processor(),
            "files": {str(path): file_sha256(path) for path in (*sources, *headers)},
            "flags": {str(path): list(flags) for path, flags in sources.items()},
        }
    )
    library = cache_dir() / "benchmarks" / "aqlm" / f"{name}-{key[:16]}" / "contender.so"
    if library.exists():
        return library
    work = library.parent
    work.mkdir(parents=True, exist_ok=True)
    here = [f"-I{folder}" for folder in includes]

    def compile_one(source: Path) -> str:
        target = work / f"{source.stem}.o"
        _run([compiler.path, *_FLAGS, *sources[source], *here, "-c", source, "-o", target])
        return str(target)

    with ThreadPoolExecutor() as pool:
        objects = list(pool.map(compile_one, sources))
    _run([compiler.path, *_FLAGS, "-shared", *objects, "-o", work / "unfinished.so"])
    return (work / "unfinished.so").replace(library)


def _run(argv: Sequence[str | Path]) -> None:
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, argv[0], done.stdout, done.stderr)


def _processor() -> str:
    """What `-march=native` depends on."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(("model name", "flags", "Features"))))


def _sizes(case: Case) -> tuple[Any, ...]:
    tokens, inputs = case.input.shape
    return (
        *(ctypes.c_int64(size) for size in (tokens, inputs // 8, case.scales.shape[0], case.codebooks.shape[0])),
        ctypes.c_void_p(case.input.data_ptr()),
    )


def _pointers(case: Case, codes: torch.Tensor) -> tuple[Any, ...]:
    rest = (ctypes.c_void_p(array.data_ptr()) for array in (codes, case.codebooks, case.scales))
    return (*rest, None, ctypes.c_void_p(case.out.data_ptr()))


def _package() -> Distribution:
    """The package where it is installed, else a copy of its own, which numba comes with."""
    try:
        found = distribution("aqlm")
        if found.version == AQLM and importlib.util.find_spec("numba"):
            return found
    except PackageNotFoundError:
        pass
    folder = cache_dir() / "benchmarks" / f"aqlm-{AQLM}"
    if not folder.exists():
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        wanted = (f"aqlm=={AQLM}", *NUMBA)
        _run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", unfinished, *wanted])
        unfinished.rename(folder)
    sys.path.append(str(folder))
    return next(iter(distributions(name="aqlm", path=[str(folder)])))


if __name__ == "__main__":
    sys.exit("this is a library; run one of the benchmarks beside it")
