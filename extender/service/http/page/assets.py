"""The files of the page: a fixed set, in memory, under fixed names. No part of a URL becomes the
path of a file.

Each file has a strong ETag of its content, and browsers check it every time (``no-cache``), so no
page mixes two versions after an upgrade. The Content-Security-Policy lets the browser load only
from here, run only these scripts, and pass no text to an HTML parser (Trusted Types).
"""

import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import Final

from aiohttp import web

TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
        "'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file as it is served."""

    content: bytes
    content_type: str
    etag: str

    def answer(self, request: web.Request) -> web.Response:
        """The file, or 304 for a client that has it."""
        headers = {**HEADERS, "ETag": f'"{self.etag}"', "Content-Type": self.content_type}
        known = request.if_none_match or ()
        if any(tag.value in {self.etag, "*"} for tag in known):
            del headers["Content-Type"]
            return web.Response(status=304, headers=headers)
        return web.Response(body=self.content, headers=headers)


def load_assets() -> dict[str, Asset]:
    """The files of the package ``extender.ui``, by name."""
    found = {}
    for file in resources.files("extender").joinpath("ui").iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None and file.is_file():
            content = file.read_bytes()
            found[file.name] = Asset(content, kind, hashlib.sha256(content).hexdigest()[:32])
    return found
