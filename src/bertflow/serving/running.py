"""From an application to a running server, and to its end: what was taken is answered before it stops."""

from __future__ import annotations

import ipaddress
import logging
import socket
from typing import Any

import uvicorn

from bertflow.errors import InputError
from bertflow.serving.guard import THIS_MACHINE

PATIENCE = 60  # seconds that running requests have when the service is told to stop
CONNECTIONS = 1000  # at once; beyond them 503


def bind(host: str, port: int) -> socket.socket:
    """Take an address, before any model is loaded; nobody can connect yet.

    Args:
        host: A name or address of this machine; ``0.0.0.0`` for all of its addresses.
        port: 0 for any that is free.
    """
    if not 0 <= port <= 65535:
        raise InputError(f"The port is {port}; it must be a number from 0 (any that is free) to 65535.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        taken = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise InputError(f"The host {host!r} is not known: {error}.") from None
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(address)
    except OSError as error:
        taken.close()
        raise InputError(f"{host}:{port} cannot be served: {error.strerror}. Give another --host or --port.") from None
    return taken


def listen(taken: socket.socket) -> str:
    """Let clients connect, who are answered once the server runs; return the address for a browser."""
    taken.listen(CONNECTIONS)
    host, port = taken.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_local(host: str) -> bool:
    """Whether only programs of this machine reach a host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hosts_for(host: str, has_keys: bool) -> set[str] | None:
    """Return the names under which a service answers; None for any, where keys or the network decide who may ask."""
    return THIS_MACHINE | {host} if is_local(host) and not has_keys else None


def server(app: Any) -> uvicorn.Server:
    """Return a server of an application, which says nothing but warnings."""
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    config = uvicorn.Config(
        app,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=PATIENCE,
        timeout_graceful_shutdown=PATIENCE,
    )
    return uvicorn.Server(config)


def run(app: Any, taken: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM; then answer what was taken, and return."""
    server(app).run(sockets=[taken])
