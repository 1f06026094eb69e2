"""Operator libraries of a user's own, written by tests."""

from __future__ import annotations

from pathlib import Path

OUT = "(Tensor x, *, Tensor(a!) out) -> Tensor(a!)"

TWICE = """\
#include <executorch/extension/kernel_util/make_boxed_from_unboxed_functor.h>
using executorch::aten::Tensor;

static Tensor& twice(executorch::runtime::KernelRuntimeContext&, const Tensor& x, Tensor& out) {
  for (ssize_t i = 0; i < x.numel(); ++i) out.mutable_data_ptr<float>()[i] = 2 * x.const_data_ptr<float>()[i];
  return out;
}
EXECUTORCH_LIBRARY(shout, "twice.out", twice);
"""


def write_operators(
    folder: Path,
    *,
    name: str = "shout_ops",
    namespace: str = "shout",
    operators: tuple[str, ...] = ("twice.out",),
    source: str = TWICE,
    more: str = "",
) -> Path:
    """A folder with `op.yaml`, one line a key, and `twice.cpp`; `more` is further lines of the description."""
    folder.mkdir(parents=True, exist_ok=True)
    schemas = ", ".join(f'"{operator}{OUT}"' for operator in operators)
    (folder / "op.yaml").write_text(
        f"name: {name}\nnamespace: {namespace}\noperators: [{schemas}]\nsources: [twice.cpp]\n{more}"
    )
    (folder / "twice.cpp").write_text(source)
    return folder
