"""`nmt serve`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.options import DeviceOption, SearchOption, SearchPrecisionOption
from nmt.core.errors import UsageError
from nmt.core.packages import require_package

if TYPE_CHECKING:
    from nmt.translation.guard import Guard

PACKAGES = ("starlette", "uvicorn", "python_multipart", "prometheus_client", "jinja2")
"""Modules that the server needs, some of them only for certain requests."""


def serve(
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model",
            "-m",
            help=(
                "Run or checkpoint directory, or the name of a pretrained or published model;"
                " repeat for further "
                "language pairs."
            ),
            show_default="en-de and de-en",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 for all networks.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 selects a free one.")
    ] = 5000,
    search: SearchOption = "",
    no_confidence: Annotated[
        bool,
        typer.Option(
            "--no-confidence", help="Do not estimate the quality of each translation (faster)."
        ),
    ] = False,
    max_length: Annotated[
        int, typer.Option(min=1, help="Maximum number of characters in a request.")
    ] = 10_000,
    max_file_length: Annotated[
        int, typer.Option(min=1, help="Maximum number of characters in a file.")
    ] = 200_000,
    max_body: Annotated[
        float, typer.Option(min=0.01, max=1000, help="Maximum size of a file upload, in MB.")
    ] = 10,
    rate_limit: Annotated[
        int,
        typer.Option(
            min=0,
            max=1_000_000,
            help="Maximum number of requests per minute of a client or API key; 0: no limit.",
        ),
    ] = 0,
    max_concurrent: Annotated[
        int,
        typer.Option(
            min=1, help="Maximum number of requests that are translated or wait at a time."
        ),
    ] = 100,
    max_batch: Annotated[
        int, typer.Option(min=1, max=1024, help="Maximum number of lines translated together.")
    ] = 64,
    glossary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[SRC-TGT=]FILE",
            help=(
                "Terms whose translation is given: a TSV, TBX or TMX file. With several models,"
                " name the languages: en-de=terms.tsv; may be repeated."
            ),
        ),
    ] = None,
    api_keys: Annotated[
        Path | None,
        typer.Option(
            help=(
                "File with API keys, one per line; requests to translate or detect need one of"
                " them."
            )
        ),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help=(
                "Reverse proxy whose X-Forwarded-For is used: an address, a network or *; may be"
                " repeated."
            ),
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=(
                "Name in the URL of the server, for example behind a proxy, or * for any; may be"
                " repeated."
            ),
            show_default="this machine and --host",
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help=(
                "Site whose pages may use the server, such as https://example.org, or * for all;"
                " may be repeated."
            ),
            show_default="* with --api-keys, otherwise none",
        ),
    ] = None,
    access_log: Annotated[
        bool,
        typer.Option("--access-log", help="Log each request on stderr, with the client's address."),
    ] = False,
    device: DeviceOption = "auto",
    precision: SearchPrecisionOption = "auto",
) -> None:
    """Serve translations over HTTP, with the API of LibreTranslate and a page at /.

    Requests that arrive together are translated together. Stop the server with Ctrl-C, SIGTERM or
    SIGHUP: it finishes the requests that it has received. Requires additional packages: pip install
    'nmtkit[serve]' or 'nmtkit-core[serve]'.

    Examples:
      nmt serve
      nmt serve --model runs/multi30k --model Helsinki-NLP/opus-mt-de-en --port 8000
      nmt serve --glossary en-de=terms.tsv --access-log
      nmt serve --host 0.0.0.0 --api-keys keys.txt --rate-limit 60 --max-length 2000
    """
    for module in PACKAGES:
        require_package(module, module)
    from nmt.core.console import log
    from nmt.runs import pretrained
    from nmt.search import parse_search
    from nmt.server import http
    from nmt.server.access import ANY, Access
    from nmt.server.app import create_app
    from nmt.server.files import start_processes
    from nmt.server.limits import Limits, read_keys
    from nmt.server.service import Service
    from nmt.translation.guard import Guard
    from nmt.translation.translator import Translator

    if search:
        parse_search(search)
    proxies = [_parse_proxy(address) for address in trusted_proxy or ()]
    keys: frozenset[bytes] = read_keys(api_keys) if api_keys else frozenset()
    limits = Limits(
        max_length, round(max_body * 1e6), max_file_length, rate_limit, max_concurrent, keys=keys
    )
    access = Access.parse(host, allow_host or (), cors or ([ANY] if keys else []))
    paths = model or [Path(name) for name in pretrained.DIRECTIONS]
    with http.listen(host, port) as listener:
        start_processes()
        guards = [Guard(Translator.load(path, device, precision)) for path in paths]
        _load_glossaries(guards, glossary or ())
        service = Service(guards, search=search, max_batch=max_batch, confidence=not no_confidence)
        service.warm_up()
        for path, guard in zip(paths, guards, strict=True):
            log(f"serving {path} ({' to '.join(guard.languages)})")
        log(f"listening on {http.url(listener)}; press Ctrl-C to stop")
        app = create_app(service, limits, access, access_log=access_log)
        http.serve(http.make_server(app, proxies), listener)
    log("stopped")
    # Without waiting for a thread that works on a request that has exceeded SHUTDOWN_TIMEOUT.
    os._exit(0)


def _load_glossaries(guards: Sequence[Guard], values: Iterable[str]) -> None:
    """Give each guard the glossary for its languages.

    Raises:
        UsageError: it is not clear which guard a glossary is for, or one has several.
        DataError: see `Glossary.load`.
    """
    from nmt.translation.glossary import Glossary

    by_languages = {"-".join(guard.languages): guard for guard in guards}
    for value in values:
        languages, separator, name = value.partition("=")
        if not separator:
            languages, name = next(iter(by_languages)) if len(guards) == 1 else "", value
        guard = by_languages.get(languages)
        if guard is None:
            example = " or ".join(f"--glossary {each}={name}" for each in by_languages)
            problem = (
                f"no model translates {languages}" if languages else "there are several models"
            )
            raise UsageError(f"--glossary {value}: {problem}", f"write {example}")
        if guard.glossary:
            raise UsageError(
                f"--glossary {value}: there is another one for {languages}", "join the files"
            )
        guard.glossary = Glossary.load(Path(name), *guard.languages)


def _parse_proxy(address: str) -> str:
    """Return an address, a network or `*` for all addresses.

    Raises:
        UsageError: no client can have the address.
    """
    try:
        if "/" in address:
            return str(ip_network(address, strict=False))
        return address if address == "*" else str(ip_address(address))
    except ValueError:
        hint = "name an address, a network or '*', for example 127.0.0.1 or 10.0.0.0/8"
        raise UsageError(f"--trusted-proxy {address} is no IP address", hint) from None
