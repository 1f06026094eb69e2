"""A small Hugging Face hub on loopback: what `huggingface_hub` asks for to download a model, and no more."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """Models by `ORG/NAME`: the folder with their files. `refuses` gives some of them an error (status, code of the hub)."""

    models: dict[str, Path] = field(default_factory=dict)
    refuses: dict[str, tuple[int, str]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    address: str = ""

    @property
    def downloads(self) -> list[str]:
        """Files whose content was sent."""
        return [
            line.split("/resolve/")[1].split("/", 1)[1]
            for line in self.requests
            if line.startswith("GET") and "/resolve/" in line
        ]


@contextlib.contextmanager
def serve() -> Iterator[Hub]:
    """The hub, while the block lasts."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing is printed."""

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append(f"{self.command} {path}")
            words = path.strip("/").split("/")
            api = words[:2] == ["api", "models"]
            name = "/".join(words[2:4] if api else words[:2])
            if name in hub.refuses:
                self._refuse(*hub.refuses[name])
            elif name not in hub.models:
                self._refuse(404, "RepoNotFound")
            elif api and len(words) > 5 and words[4] == "revision" and words[5] not in ("main", COMMIT):
                self._refuse(404, "RevisionNotFound")
            elif api:
                self._json(_listing(hub.models[name], name, tree="tree" in words), body=body)
            else:
                self._file(hub.models[name] / "/".join(words[4:]), body=body)

        def _refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", f"refused: {code}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _json(self, document: object, *, body: bool) -> None:
            data = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if body:
                self.wfile.write(data)

        def _file(self, path: Path, *, body: bool) -> None:
            if not path.is_file():
                self._refuse(404, "EntryNotFound")
                return
            data = path.read_bytes()
            self.send_response(200)
            self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if body:
                self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _listing(folder: Path, name: str, *, tree: bool) -> object:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if tree:
        return [
            {
                "type": "file",
                "path": path.relative_to(folder).as_posix(),
                "size": path.stat().st_size,
                "oid": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for path in files
        ]
    siblings = [{"rfilename": path.relative_to(folder).as_posix(), "size": path.stat().st_size} for path in files]
    return {"_id": "1", "id": name, "modelId": name, "sha": COMMIT, "private": False, "tags": [], "siblings": siblings}
