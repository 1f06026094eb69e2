"""A symbolic link on a device that says who has it, and the process there that keeps it true.

The link's text names a process of the device, by number and start time, since numbers come again; then a word that no other link has; then whose
it is. That process lives as long as the connection of the etcli that started it, and writes a line now and then, so that the device finds out by
itself when nobody is at the other end any more. A link whose process is gone holds nobody up.

When the connection breaks the link stays, for a process that is gone. Whoever finds it still there afterwards knows that nobody else had the device
meanwhile, and takes it up again; whoever does not find it knows that somebody had.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
from dataclasses import dataclass
from typing import Literal

from etcli.common.errors import DeviceError
from etcli.device.base import Device, Stream
from etcli.device.deployed import ROOT
from etcli.device.shelltext import script

LINK = f"{ROOT}/.etcli-lock"

_RELEASE_SECONDS = 10.0
_ASK_SECONDS = 10.0
_AGAIN_SECONDS = 0.5
_HELD, _BUSY, _LOST = "held", "busy", "lost"

# $1 is the link, $2 our word, $3 who we are, $4 `first` or `again`. Of a link to be replaced, exactly one process at a time may make the
# second link that is named after the one before, and give it the name in one step: it may be killed at any moment, its connection breaking again.
_HOLD = """
started() {
    since=
    { read -r line < "/proc/$1/stat"; } 2>/dev/null || return 0
    set -- ${line##*) }
    since=${20}
}
hold() { echo held; while :; do sleep 20; echo; done; }
link() { [ ! -d "$1" ] && ln -s "$mine" "$1" 2>/dev/null; }  # in a folder of that name it would make one
started $$
mine="$$ $since $2 $3"
for attempt in 1 2 3 4 5 6; do
    if [ "$4" = first ] && link "$1"; then hold; fi
    if ! held=$(readlink "$1"); then
        if [ "$4" = first ]; then continue; fi
        echo lost; exit 75
    fi
    pid=${held%% *}; rest=${held#* }; told=${rest%% *}; rest=${rest#* }; word=${rest%% *}
    case $pid in ''|*[!0-9]*) pid=0 ;; esac
    started "$pid"
    alive=; if [ -n "$since" ] && [ "$since" = "$told" ]; then alive=1; fi
    if [ "$word" != "$2" ]; then
        if [ "$4" = again ]; then echo "lost $held"; exit 75; fi
        if [ "$alive" ]; then echo "busy $held"; exit 75; fi
    elif [ "$alive" ]; then kill "$pid"
    fi
    if link "$1.$pid"; then
        if [ "$(readlink "$1")" = "$held" ] && { [ ! -d "$1" ] || rm -f "$1"; } && mv -f "$1.$pid" "$1"; then hold; fi
        rm -f "$1.$pid"
    else
        other=$(readlink "$1.$pid"); rest=${other#* }
        case ${other%% *} in ''|*[!0-9]*) since= ;; *) started "${other%% *}" ;; esac
        if [ -z "$since" ] || [ "$since" != "${rest%% *}" ]; then rm -f "$1.$pid"; else sleep 1; fi
    fi
done
echo "no link can be made"
exit 1
"""

# What is there by now may be another's.
_RELEASE = 'case "$(readlink "$1")" in *" $2 "*) rm -f "$1" ;; esac'


class HeldLink:
    """The link, held from a `take` that succeeds until `release`. `complaint` says why the device has none.

    A thread looks after it: where the connection breaks, it takes the link up again as soon as the device is back.
    """

    def __init__(self, device: Device, who: str) -> None:
        self._device = device
        self._who = re.sub(r"[^\w .,@:+-]", "_", who)
        self._word = secrets.token_hex(4)
        self._stream: Stream | None = None
        self._over = threading.Event()
        self._taken: str | None = None
        self._keeper: threading.Thread | None = None
        self.complaint = ""

    def take(self) -> str | None:
        """Take the link, if it is free; otherwise who has it.

        Raises:
            DeviceError: the device is gone.
        """
        answer = self._ask("first")
        if answer.word == _HELD:
            self._keeper = threading.Thread(target=self._keep, args=(answer,), name="etcli-device-lock", daemon=True)
            self._keeper.start()
            return None
        answer.connection.close()
        if answer.word == _BUSY:
            return answer.rest
        self.complaint = answer.rest
        return None

    def taken_by(self) -> str | None:
        """Who took the device while the connection was broken, an empty text where that cannot be told; None where nobody did.

        The device itself is asked: the thread that looks after the link may not have noticed yet that its connection is none any more.
        """
        if self._keeper is None or self._taken is not None:
            return self._taken
        with contextlib.suppress(DeviceError):  # whoever needs the device finds out soon enough
            words = self._device.shell(["readlink", LINK], timeout=_ASK_SECONDS).stdout.strip().split(" ", 3)
            if self._word not in words[:3]:
                return words[3] if len(words) > 3 else ""
        return self._taken

    def release(self) -> None:
        """Give it back. Without effect where it is not held."""
        self._over.set()
        if self._keeper is None:
            return
        with contextlib.suppress(DeviceError):  # the process is gone with the connection then
            self._device.shell(script(_RELEASE, LINK, self._word), timeout=_RELEASE_SECONDS)
        if self._stream is not None:
            self._stream.close()
        self._keeper.join(_RELEASE_SECONDS)

    def _ask(self, how: Literal["first", "again"]) -> _Answer:
        with contextlib.ExitStack() as stack:
            stream = stack.enter_context(self._device.open(script(_HOLD, LINK, self._word, self._who, how)))
            word, _, rest = next(iter(stream.lines()), "").partition(" ")
            if word in (_BUSY, _LOST):
                rest = rest.split(" ", 3)[-1]  # three words come before who it is
            elif word != _HELD:
                rest = f"{word} {rest}".strip() or stream.stderr.strip() or "it does not say why"
            return _Answer(word, rest, stream, stack.pop_all())
        raise AssertionError("a stack of streams swallows nothing")

    def _keep(self, answer: _Answer) -> None:
        while True:
            self._stream = answer.stream
            with answer.connection, contextlib.suppress(DeviceError):
                for _ in answer.stream.lines():
                    if self._over.is_set():
                        break
            while True:
                if self._over.wait(_AGAIN_SECONDS):
                    return
                with contextlib.suppress(DeviceError):
                    answer = self._ask("again")
                    if answer.word in (_HELD, _LOST):
                        break
                    answer.connection.close()
            if answer.word == _LOST:
                self._taken = answer.rest
                answer.connection.close()
                return


@dataclass(frozen=True)
class _Answer:
    """What the device answered: a word, what follows it, and the connection, on which the program that answered lives as long as it is open."""

    word: str
    rest: str
    stream: Stream
    connection: contextlib.ExitStack
