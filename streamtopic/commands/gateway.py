"""`streamtopic gateway`: takes requests for deletions from privacy tools over HTTP."""

from __future__ import annotations

import argparse
import ssl
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from streamtopic.commands.common_arguments import command, log_server, settings_of
from streamtopic.console import say, say_json, warn
from streamtopic.errors import SettingsError, UsageError
from streamtopic.monitoring.endpoint import is_loopback

if TYPE_CHECKING:
    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.gateway.gateway_routes import GatewayOptions
    from streamtopic.gateway.response_signing import ResponseSigner
    from streamtopic.settings import Settings

__all__ = ["register"]

PORT = 8788


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(
        subparsers, "gateway", _run, "take requests for deletions over HTTP (OpenDSR 2.0) until told to stop"
    )
    parser.add_argument("--host", default="127.0.0.1", metavar="HOST", help="where to listen (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=PORT, metavar="PORT", help=f"default: {PORT}; 0: any that is free")
    parser.add_argument("--tls", action="store_true", help="speak TLS with the gateway's certificate")


def _run(args: argparse.Namespace) -> int:
    """Serve until a signal, and send callbacks meanwhile."""
    try:
        from streamtopic.dashboard import dashboard_server
    except ModuleNotFoundError as error:
        raise UsageError(f"the gateway needs {error.name}: pip install 'streamtopic[dashboard]'") from None
    from streamtopic.gateway.callback_sender import CallbackSender, SenderOptions
    from streamtopic.gateway.gateway_routes import gateway
    from streamtopic.service.requests.request_door import RequestDoor
    from streamtopic.state import Connection
    from streamtopic.state.deletion_requests import DeletionRequests

    settings = settings_of(args)
    signer = _signer(settings)
    options = _options(settings, args.host)
    if settings.redis_url is None:
        raise SettingsError("the gateway needs the setting `redis_url`: the Redis of the service, which keeps requests")
    if not args.tls and not is_loopback(args.host):
        warn("the token and identities cross the network in the clear: give --tls, or a proxy with TLS")
    if signer.self_signed:
        warn("the certificate is self-signed, which OpenDSR forbids: requesters may refuse its signatures")
    log_server("gateway", settings.model)
    stop = threading.Event()
    url = settings.redis_url.get_secret_value()
    with (
        Connection(url) as connection,
        # Callbacks are sent by another thread.
        Connection(url) as sending_connection,
        dashboard_server.listening(args.host, args.port) as listener,
    ):
        connection.ping()
        door = RequestDoor(settings, connection, time.time)
        sending = SenderOptions(options.controller, options.private, ssl.create_default_context())
        waiting = DeletionRequests(sending_connection, settings.model)
        sender = CallbackSender(waiting, signer, sending, time.time)
        thread = threading.Thread(target=sender.run, args=(stop,), name="callbacks", daemon=True)
        address = dashboard_server.address_of(listener, secure=args.tls)
        files = None
        if args.tls and settings.gateway_certificate is not None and settings.gateway_key is not None:
            files = dashboard_server.TlsFiles(settings.gateway_certificate, settings.gateway_key)

        def started() -> None:
            if args.json:
                say_json({"event": "gateway", "address": address})
            else:
                say(f"gateway: {address}")

        server = dashboard_server.dashboard_server(gateway(door, signer, options), files, started)
        dashboard_server.leave_quietly(server)
        thread.start()
        try:
            server.run(sockets=[listener])
        finally:
            stop.set()
            thread.join(30)
    return 0


def _signer(settings: Settings) -> ResponseSigner:
    """Return what signs answers. Raises SettingsError where a setting is missing, or does not fit another."""
    from streamtopic.gateway.response_signing import ResponseSigner

    domain, certificate, key = settings.gateway_domain, settings.gateway_certificate, settings.gateway_key
    if domain is None or certificate is None or key is None:
        raise SettingsError(
            "the gateway signs its answers: set `gateway_domain`, and `gateway_certificate` and `gateway_key`, the "
            "files of a certificate for this domain and of its private key"
        )
    return ResponseSigner.load(domain, certificate, key, datetime.now(UTC))


def _options(settings: Settings, host: str) -> GatewayOptions:
    """Return whom the gateway answers. Raises SettingsError for a host that others reach, without a token."""
    from streamtopic.dashboard.gate import Access
    from streamtopic.gateway.gateway_routes import GatewayOptions

    secret = settings.gateway_token
    if secret is None and not is_loopback(host):
        raise SettingsError(
            f"--host {host} lets other machines ask for deletions: set `gateway_token`, 16 characters or more, in "
            "STREAMTOPIC_GATEWAY_TOKEN or a file of secrets; or leave out --host"
        )
    token = None if secret is None else secret.get_secret_value()
    kinds = dict(entry.split("=") for entry in settings.gateway_identities.split(","))
    return GatewayOptions(
        access=Access(token, reading=True),
        controller=settings.gateway_controller,
        identity_types=kinds,
        private=settings.gateway_private_callbacks,
        names=frozenset({host.lower()}),
    )
