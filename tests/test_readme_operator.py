"""The README's "Your own operator", as it stands there: pasted, exported, built, run; and the same library in other hands."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from operator_folders import write_operators

from etcli.toolchain.registrations import read_registrations

README = Path(__file__).parents[1] / "README.md"
NAMED = re.compile(r"^(?:#|//) (\S+\.\w+)\n", re.MULTILINE)

THREADS = """\
#include <cstdio>
#include <omp.h>
#include <executorch/extension/kernel_util/make_boxed_from_unboxed_functor.h>
using executorch::aten::Tensor;
static Tensor& threads(executorch::runtime::KernelRuntimeContext&, const Tensor&, Tensor& out) {
  int count = 0;
  #pragma omp parallel reduction(+ : count)
  count += 1;
  out.mutable_data_ptr<float>()[0] = static_cast<float>(count);
  std::printf("printed by the operator");
  std::fflush(stdout);
  return out;
}
EXECUTORCH_LIBRARY(count, "threads.out", threads);
"""
COUNTING = """
import torch
from executorch.exir import to_edge
from etcli.ops.own import define_own
define_own("threads")
torch.library.impl("count::threads", "default", torch.clone)
class Net(torch.nn.Module):
    forward = lambda self, x: torch.ops.count.threads(x)
open("threads.pte", "wb").write(to_edge(torch.export.export(Net(), (torch.ones(1),))).to_executorch().buffer)
"""


def section() -> str:
    return README.read_text(encoding="utf-8").partition("## Your own operator\n")[2].partition("\n## ")[0]


def files() -> dict[str, str]:
    """Name to text of the files of the section's block: each begins with its name in a comment."""
    block = "".join(line[4:] + "\n" for line in section().splitlines() if line.startswith("    "))
    _, *parts = NAMED.split(block)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def commands() -> list[list[str]]:
    """The commands that the text below the block gives."""
    return [shlex.split(text) for text in re.findall(r"`((?:python|etcli|\.etcli)[^`]*)`", section())]


def run(argv: list[str], folder: Path) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ETCLI_RECIPE")}
    done = subprocess.run(
        argv, cwd=folder, env={**environment, "PATH": path}, capture_output=True, text=True, timeout=540, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_short() -> None:
    assert len(section().strip().splitlines()) + 2 < 30
    assert list(files()) == ["ops/op.yaml", "ops/twice.cpp", "net.py"]
    assert [argv[0] for argv in commands()] == [
        "python",
        "etcli",
        ".etcli/smollm2-135m/build/host/stage/etcli_executor_runner",
    ]


@pytest.mark.known_failure("openmp-thread-count-fixed")
def test_followed_to_its_end(tmp_path: Path) -> None:
    """One test, so that parallel processes compile one runner."""
    for name, text in files().items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for argv in commands():
        run(argv, tmp_path)
    assert numpy.fromfile(tmp_path / "out" / "output_0.bin", "float32").tolist() == [2.0] * 4
    build = tmp_path / ".etcli" / "smollm2-135m" / "build" / "host"
    [custom] = json.loads((build / "manifest.json").read_text())["custom_ops"]
    assert (custom["name"], custom["operators"]) == ("shout_ops", ["shout::twice.out"])
    assert str(tmp_path) not in (build / "CMakeLists.txt").read_text()

    # the same program in ExecuTorch's Python runtime, with the same source compiled for it
    code = (
        "import torch\nfrom etcli.ops.own import load_own\nfrom executorch.runtime import Runtime\nload_own('ops')\n"
        "method = Runtime.get().load_program('net.pte').load_method('forward')\n"
        "print(method.execute([torch.tensor([1.0, 2.0, 3.0, -4.5])])[0].tolist())\n"
    )
    assert run([sys.executable, "-c", code], tmp_path).splitlines()[-1] == "[2.0, 4.0, 6.0, -9.0]"
    printed = run([sys.executable, "-m", "etcli.ops", "ops"], tmp_path)
    assert read_registrations(Path(printed.strip())).operators == ("shout::twice.out",)

    # another operator beside it, whose OpenMP obeys the runner's number of threads
    write_operators(
        tmp_path / "threads",
        name="count_ops",
        namespace="count",
        operators=("threads.out",),
        source=THREADS,
        more="openmp: true\n",
    )
    run([sys.executable, "-c", COUNTING], tmp_path)
    both = ("--set", "build.custom_ops=[./ops, ./threads]", "--set", "build.openmp=static")
    run(["etcli", "build", "--target", "host", *both], tmp_path)
    log = (build / "logs" / "build.log").read_text()
    assert "runtime.cpp.o" in log
    assert "generate.cpp.o" not in log, "the tree that was there is built on"
    runner = commands()[2][0]
    for threads in ("1", "3"):
        events = run([runner, "--model", "threads.pte", "--threads", threads, "--output-dir", "counted"], tmp_path)
        assert [json.loads(line)["event"] for line in events.splitlines()] == ["start", "loaded", "output", "stats"]
        assert numpy.fromfile(tmp_path / "counted" / "output_0.bin", "float32").tolist() == [float(threads)]
