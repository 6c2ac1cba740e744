"""Pairing: the digest of a client's network."""

from __future__ import annotations

from edge.pairing import client_digest
from mesh.ids import is_id


def test_client_digest_is_that_of_its_network() -> None:
    same = [
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("2001:db8::1", "2001:db8::ffff:1"),  # whoever has one address of a /64 has all of them
        ("somewhere", "somewhere"),
    ]
    for one, other in same:
        assert client_digest(one) == client_digest(other) and is_id(client_digest(one))
    others = ["10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8:0:1::1", "", "somewhere"]
    assert len({client_digest(address) for address in others}) == len(others)
