"""The parts of an address of a switch, which messages name without its password."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qs, urlsplit

from optmatch.model import InputError

_EXPECTED = "an address such as redis://127.0.0.1:6379, scpi://HOST or dry: is expected"

_DATABASE_SCHEMES = ("redis", "rediss", "unix")
_HOST_SCHEMES = ("redis", "rediss", "scpi")


def split_address(url: str) -> SplitResult:
    """Split the address of a switch into the parts of `urllib.parse`.

    Refused are hosts and ports that are none, passwords with letters that end the name of a host,
    and Redis addresses without a host or with a database. The message has no part that could
    belong to a password.

    Examples
    --------
    >>> split_address("scpi://[::1]:5025").hostname
    '::1'
    """
    # A slash, a question mark or a hash in a password ends the host for every reader of addresses,
    # and the rest of the password, up to the @ before the true host, becomes a path.
    scheme, _, behind_scheme = url.partition("://")
    authority = re.split(r"[/?#]", behind_scheme, maxsplit=1)[0]
    is_socket = scheme.lower() == "unix"
    if is_socket and authority and "@" not in authority:
        raise InputError("switch: a socket has three slashes, as unix:///FILE", where="switch")
    if scheme.lower() in _HOST_SCHEMES and "@" in behind_scheme[len(authority) :]:
        raise InputError(
            "switch: there is an @ behind the host; in a password / is written as %2F, ? as %3F"
            " and # as %23",
            where="switch",
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InputError(
            "switch: no host or no port can be read, which is a number below 65536; in a password"
            " [ is written as %5B and ] as %5D",
            where="switch",
        ) from None

    if parts.scheme in _DATABASE_SCHEMES:
        has_place = bool(parts.path) if is_socket else bool(parts.hostname)
        if not has_place or port == 0:
            raise InputError(f"switch: {_EXPECTED}", where="switch")
        has_number = not is_socket and parts.path.strip("/") != ""
        if has_number or "db" in parse_qs(parts.query):
            raise InputError(
                "switch: the address names a database; those of SONiC have the numbers 4"
                " (CONFIG_DB) and 6 (STATE_DB), which the address leaves out",
                where="switch",
            )
    return parts


def refuse_address(parts: SplitResult) -> InputError:
    """Return the error for an address that no driver takes, without its password."""
    url = parts.geturl()
    if "@" in url:
        url = f"{parts.scheme}://..."
    return InputError(f"switch {url[:80]!r}: {_EXPECTED}", where="switch")
