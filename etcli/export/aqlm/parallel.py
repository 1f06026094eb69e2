"""Work divided into parts that do not depend on the number of threads, so that results have the same bits with any number.

PyTorch's own threads divide products by their number, and with it the order of sums; so each part runs on one thread of PyTorch's, and the
parts run side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")


class Workers:
    """So many threads, each with one thread of PyTorch's; a context manager. The calling thread is set to one as well."""

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(1)
        self._pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def map(self, action: Callable[[T], R], parts: Iterable[T]) -> list[R]:
        """What `action` gives of each part, in the order of the parts. It runs without gradients."""

        def run(part: T) -> R:
            with torch.no_grad():
                return action(part)

        return list(self._pool.map(run, parts))
