"""Loopback addresses: the only definition of "this machine", for commands, listeners and bypassing a proxy."""

from __future__ import annotations

import ipaddress
from typing import Final

LOOPBACK: Final = "127.0.0.1"
LOCALHOST: Final = "localhost"


def is_loopback(host: str | None) -> bool:
    """True for localhost and for addresses of the loopback interface, IPv4 in IPv6 included. Names are not resolved."""
    if not host:
        return False
    if host == LOCALHOST:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
