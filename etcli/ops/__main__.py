"""`python -m etcli.ops FOLDER [--torch]`: compile an operator library of your own for this machine's Python and print where it is."""

from __future__ import annotations

import argparse
import os
import sys

from etcli.common.errors import EtcliError, ExitCode
from etcli.common.text import shown
from etcli.ops.own import own_library, own_torch_library
from etcli.output.console import Console


def main(arguments: list[str] | None = None) -> int:
    """The path of the library on stdout, everything else on stderr; the exit code is that of `docs/cli.md`."""
    parser = argparse.ArgumentParser(
        prog="python -m etcli.ops",
        description="Compile an operator library (a folder with op.yaml) for ExecuTorch's Python runtime and print the path of the .so. "
        "It is compiled once, and again after a change.",
    )
    parser.add_argument("folder", help="the folder that op.yaml stands in")
    parser.add_argument(
        "--torch", action="store_true", help="bind it to PyTorch instead, from the sources under torch:"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show what CMake and the compiler say")
    given = parser.parse_args(arguments)
    console = Console(json=True, verbosity=1 if given.verbose else 0)
    try:
        path = (own_torch_library if given.torch else own_library)(given.folder, console)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except EtcliError as error:
        for problem in error.problems:
            place = (
                f"{problem.place}: " if problem.file is not None and str(problem.file) not in problem.message else ""
            )
            print(f"error: {shown(place + problem.message)}", file=sys.stderr)
            if problem.hint:
                print(f"       {shown(problem.hint)}", file=sys.stderr)
        return int(error.exit)
    try:
        print(path, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # where what is still in the buffer goes when Python ends
        print(f"error: the path cannot be written: {error.strerror or error}", file=sys.stderr)
        return int(ExitCode.ENVIRONMENT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
