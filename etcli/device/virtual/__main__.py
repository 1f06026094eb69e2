"""`python -m etcli.device.virtual FOLDER`: the daemon of the device whose folder that is. Started by `manage.start`, logs to stderr."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from etcli.common.errors import EtcliError
from etcli.device.virtual.daemon import Daemon
from etcli.device.virtual.spec import DeviceFolder

_log = logging.getLogger("etcli.device.virtual")


def main(arguments: list[str]) -> int:
    """Serve until told to stop; returns the exit status."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    if len(arguments) != 1:
        _log.error("usage: python -m etcli.device.virtual FOLDER")
        return 2
    try:
        return Daemon(DeviceFolder(Path(arguments[0]))).run()
    except EtcliError as error:
        for problem in error.problems:
            _log.error("%s", problem.message)
        return int(error.exit)
    except (OSError, RuntimeError) as error:
        _log.error("%s", error)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
