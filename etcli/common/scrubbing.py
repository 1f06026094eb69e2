"""Text without what must not leave the machine: tokens, passwords, keys, and names of the user, the home folder and the machine."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW(?:OR)?D|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|AUTH|COOKIE", re.IGNORECASE
)
_SHORTEST_SECRET = 6
"""Characters. What is shorter would take words out of every sentence, and protects nothing."""

_SHORTEST_NAME = 3

_SHAPES = (
    # -----BEGIN ... PRIVATE KEY-----
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    # Hugging Face, GitHub, GitLab, Slack, OpenAI and the like, AWS, Google, PyPI, npm
    re.compile(r"\bhf_[A-Za-z0-9]{16,}"),
    re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,})"),
    re.compile(r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    re.compile(r"\bsk-[A-Za-z0-9_-]{16,}"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"\bAIza[A-Za-z0-9_-]{30,}"),
    re.compile(r"\b(?:pypi-[A-Za-z0-9_-]{16,}|npm_[A-Za-z0-9]{20,})"),
    # a JSON web token
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
)
_HEADER = re.compile(r"(?i)\b(authorization|proxy-authorization|cookie|set-cookie)(\s*[:=]\s*)[^\r\n\"']+")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_URL_USER = re.compile(r"(?<=://)[^/\s@\"'<>]+@")
_URL_QUERY = re.compile(
    r"(?i)([?&](?:[\w.-]*(?:token|key|secret|signature|password|sig|credential|auth)[\w.-]*)=)[^&\s\"'<>#]+"
)
_KEY = (
    # "token", "hf_token", "accessToken", and none of the many other words of a language model's tools that hold it
    r"(?:[\w.-]*[_.-])?token|[\w.-]*(?-i:[a-z]Token)"
    r"|[\w.-]*(?:secret|passw(?:or)?d|passphrase|credential|api[_-]?key|access[_-]?key|private[_-]?key)[\w.-]*"
)
_NAMED = re.compile(rf"(?i)([\"']?(?<![\w.-])(?:{_KEY})[\"']?\s*[=:]\s*)(\"[^\"\r\n]+\"|'[^'\r\n]+'|[^\s,;\"'}}\]]+)")
_HARMLESS = re.compile(r"(?i)[\"']?(?:null|none|true|false|-?\d{1,7}(?:\.\d+)?|<[a-z][^>]*>|\[.*|\{.*|\$\{.*)[\"']?")
_EMAIL = re.compile(r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}\b")
_HOMES = re.compile(r"(/home/|/Users/|[A-Za-z]:[\\/]+Users[\\/]+|/export/home/|/var/home/)([^/\\\s:\"'<>,;)]+)")

REDACTED = "<redacted>"


class Scrubber:
    """Takes out of texts what must not leave this machine.

    Args:
        variables: the environment; values of variables whose names speak of secrets are taken out wherever they stand.
        named: other values that are taken out, each with what is put in its place.
    """

    def __init__(self, variables: Mapping[str, str] | None = None, named: Mapping[str, str] | None = None) -> None:
        environment = os.environ if variables is None else variables
        self._values: dict[str, str] = {}
        for name, value in environment.items():
            if _SECRET_NAME.search(name) and len(value) >= _SHORTEST_SECRET and not Path(value).is_absolute():
                for written in (
                    value,
                    quote(value, safe=""),
                    json.dumps(value)[1:-1],
                ):  # as an URL and a JSON text have it
                    self._values[written] = f"<redacted: {name}>"
        self._values |= {value: text for value, text in (named or {}).items() if len(value) >= _SHORTEST_NAME}
        self._places = _places()

    def __call__(self, text: str) -> str:
        """`text` without them."""
        # The longest first: one may be the beginning of another.
        for value in sorted(self._values, key=len, reverse=True):
            text = text.replace(value, self._values[value])
        for shape in _SHAPES:
            text = shape.sub(REDACTED, text)
        text = _HEADER.sub(rf"\1\2{REDACTED}", text)
        text = _BEARER.sub(rf"\1 {REDACTED}", text)
        text = _URL_USER.sub(f"{REDACTED}@", text)
        text = _URL_QUERY.sub(rf"\1{REDACTED}", text)
        text = _NAMED.sub(_without_value, text)
        text = _EMAIL.sub("<email>", text)
        for place, word in self._places:
            text = place.sub(word, text)
        return _HOMES.sub(r"\1<user>", text)

    def secrets(self) -> Iterable[str]:
        """The values that are taken out wherever they stand, to check that nothing of them is left."""
        return tuple(self._values)


def _without_value(match: re.Match[str]) -> str:
    value = match[2]
    if _HARMLESS.fullmatch(value):
        return match[0]
    mark = value[0] if value[0] in "\"'" else ""
    return f"{match[1]}{mark}{REDACTED}{mark}"


def _places() -> list[tuple[re.Pattern[str], str]]:
    """The home folder, the user and the machine, as whole words."""
    found: list[tuple[re.Pattern[str], str]] = []
    homes = {str(Path.home()), os.path.realpath(Path.home())} - {"/"}
    for home in sorted(homes, key=len, reverse=True):
        found.append((re.compile(re.escape(home) + r"(?![\w.-])"), "~"))
    names = ((_user(), "<user>"), (socket.gethostname(), "<host>"))
    for name, word in sorted(names, key=lambda item: -len(item[0])):  # one may be a part of the other
        # `root` and `localhost` are words of their own, and nobody's
        if len(name) >= _SHORTEST_NAME and name not in ("root", "localhost", "user"):
            found.append((re.compile(rf"(?<![\w]){re.escape(name)}(?![\w])"), word))
    return found


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no entry for this user id
        return ""
