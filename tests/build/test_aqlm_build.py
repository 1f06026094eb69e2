"""The real runner with AQLM's operators, with OpenMP inside and without: one result, whoever brings the threads and how many they are."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch
from operator_programs import AqlmProduct, lowered

from etcli.build.stage import BuildOptions, build
from etcli.common.workspace import Workspace
from etcli.device.builds import LocalBuild
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe

THREADS = ("1", "2", "3", "4")


def built(loaded: LoadedRecipe, folder: Path) -> Path:
    """The stage of a host build."""
    result = build(loaded, Workspace(folder, "small"), BuildOptions("host"), Console(verbosity=-1))
    assert result.manifest is not None
    assert {"aqlm::code1x8_lut_matmat.out", "aqlm::code2x8_lut_matmat.out"} <= set(result.manifest.operators)
    [custom] = result.manifest.custom_ops
    assert (custom.name, custom.shipped) == ("etcli_aqlm_ops", "aqlm")
    assert custom.openmp == (loaded.recipe.build.openmp == "static")
    return LocalBuild(result.folder, result.manifest, "").stage


@pytest.mark.full
@pytest.mark.known_failure("openmp-thread-count-fixed")
def test_every_number_of_threads_gives_the_same_bits(make_recipe: Callable[..., LoadedRecipe], tmp_path: Path) -> None:
    module = AqlmProduct(2, 96, 520, bias=True)
    x = torch.randn(5, 96 * 8, generator=torch.Generator().manual_seed(1))
    (tmp_path / "product.pte").write_bytes(lowered(module, (x,)))
    x.numpy().tofile(tmp_path / "x.bin")
    results = set()
    for openmp in ("off", "static"):
        loaded = make_recipe(build={"custom_ops": ["aqlm"], "openmp": openmp})
        stage = built(loaded, tmp_path / "ws")
        assert (b"GOMP_SPINCOUNT" in (stage / "etcli_executor_runner").read_bytes()) == (openmp == "static")
        for threads in THREADS:
            argv = [stage / "etcli_executor_runner", "--model", tmp_path / "product.pte", "--input", tmp_path / "x.bin"]
            options = ["--threads", threads, "--output-dir", tmp_path / "out", "--iterations", "3"]
            done = subprocess.run([*argv, *options], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            results.add((tmp_path / "out" / "output_0.bin").read_bytes())
    [only] = results
    found = numpy.frombuffer(only, "float32").reshape(5, 520)
    exact = module.exact(x).numpy()
    assert numpy.abs(found - exact).max() <= 1e-5 * numpy.abs(exact).max()
