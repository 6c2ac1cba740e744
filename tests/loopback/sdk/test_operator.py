"""Queries and commands of an operator against a server on loopback, and their failures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from linguamesh.errors import MeshRefused, Unreachable
from linguamesh.operator import Operator
from tests.support.fakes.small_edge import SmallEdge, small_edge


@pytest.fixture
def edge() -> Iterator[SmallEdge]:
    with small_edge() as edge:
        yield edge


@pytest.mark.parametrize("scheme", ["http", "ws"])
@pytest.mark.parametrize("path", ["", "/", "/ws/session"])
def test_any_address_of_an_edge_is_accepted(edge: SmallEdge, scheme: str, path: str) -> None:
    edge.pages["/api/v1/weights"] = [(200, {"version": 1})]
    edge.answers = [{"type": "done", "status": 200, "answer": {"version": 2}}]
    operator = Operator(edge.url.replace("http", scheme) + path)
    assert operator.query("weights") == {"version": 1}
    assert operator.command("weights_set", weights={}) == {"version": 2}
    assert edge.commands == [{"type": "weights_set", "weights": {}}]


def test_id_is_quoted_in_the_path(edge: SmallEdge) -> None:
    edge.pages["/api/v1/nodes/..%2Fa%3Fb"] = [(200, {})]
    assert Operator(edge.url).query("nodes", "../a?b") == {}


def test_parameters_are_sent_as_query_string(edge: SmallEdge) -> None:
    edge.pages["/api/v1/recording?selector=a%26b"] = [(200, [])]
    assert Operator(edge.url).query("recording", selector="a&b") == []


@pytest.mark.parametrize(
    ("body", "text"),
    [({"code": "C", "message": "why"}, "why"), ({"error": "why"}, "why"), ("why\nmore", "why"), ("", "status 503")],
)
def test_refusal_has_the_text_of_the_reply(edge: SmallEdge, body: object, text: str) -> None:
    edge.pages["/api/v1/pools"] = [(503, body)]
    with pytest.raises(MeshRefused) as error:
        Operator(edge.url).query("pools")
    assert (error.value.status, str(error.value)) == (503, text)


def test_refused_command_raises_its_status(edge: SmallEdge) -> None:
    edge.answers = [{"type": "error", "status": 409, "code": "CONFLICT", "message": "another version"}]
    with pytest.raises(MeshRefused, match="another version") as error:
        Operator(edge.url).command("weights_set")
    assert error.value.status == 409


def test_connection_closed_without_a_reply_is_unreachable(edge: SmallEdge) -> None:
    with pytest.raises(Unreachable, match="closed the connection"):
        Operator(edge.url).command("drain")


def test_reply_that_is_not_json_is_unreachable(edge: SmallEdge) -> None:
    edge.pages["/api/v1/weights"] = [(200, "<html>")]
    with pytest.raises(Unreachable, match="not a mesh"):
        Operator(edge.url).query("weights")


def test_refused_connection_is_unreachable(free_port: int) -> None:
    operator = Operator(f"ws://127.0.0.1:{free_port}")
    for act in (lambda: operator.query("weights"), lambda: operator.command("drain")):
        with pytest.raises(Unreachable, match="connection refused"):
            act()


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "127.0.0.1:5010", "http://", "http://[::1", "http://127.0.0.1:x"])
def test_invalid_address_is_unreachable(url: str) -> None:
    with pytest.raises(Unreachable, match="is not an address of a mesh"):
        Operator(url)
