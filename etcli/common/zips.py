"""Zip archives that others made: which failures say that one of them cannot be read."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib

_ERRORS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, RuntimeError, struct.error)


def is_unreadable(error: BaseException) -> bool:
    """Whether `error`, raised while an archive or a member of it was read, is the archive's fault and not the machine's.

    zipfile raises BadZipFile only for what it checks itself; what unpacks members has errors of its own: damaged streams, those that end early (bz2's
    are OSErrors without a number), ways of compression that this Python lacks (NotImplementedError) and encryption (both RuntimeErrors).
    """
    return isinstance(error, _ERRORS) or (isinstance(error, OSError) and error.errno is None)
