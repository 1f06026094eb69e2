"""Whether programs of this machine can reach one another over 127.0.0.1."""

from __future__ import annotations

import socket

from etcli.common.errors import ToolError

_SECONDS = 1.0


def check_loopback() -> None:
    """Listen on a free port of 127.0.0.1, connect to it and send a byte, as MediaTek's compiler talks to its own parts.

    Raises:
        ToolError: code `localhost.blocked`: it cannot be done within a second. Seen under WSL, with firewalls, and in sandboxes; the compiler
            itself then fails late and without saying why.
    """
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(_SECONDS)
            with socket.create_connection(server.getsockname(), timeout=_SECONDS) as client:
                accepted, _ = server.accept()
                with accepted:
                    accepted.settimeout(_SECONDS)
                    client.sendall(b"x")
                    if accepted.recv(1) != b"x":
                        raise OSError("the connection was closed")
    except OSError as error:
        raise ToolError(
            f"programs on this machine cannot talk over 127.0.0.1: {error.strerror or error}",
            code="localhost.blocked",
            hint="MediaTek's compiler needs it. Allow loopback connections in the firewall, sandbox or WSL settings (mirrored networking "
            "mode), and see that `localhost` is not sent through a proxy.",
        ) from None
