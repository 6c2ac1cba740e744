from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from mesh import frames
from mesh.errors import ErrorCode
from mesh.messages import client, node
from mesh.words import CloseCode
from tests.support.builders.messages import FROM_CLIENT, FROM_NODE, FROM_SCHEDULER, FROM_SERVER, Sample
from tools.protocol_tables import fill, tables

TEXT = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text(encoding="utf-8")


def rows(name: str) -> dict[str, list[str]]:
    """First cell -> the other cells, of one table as it stands in the page."""
    block = re.search(rf"<!-- begin {name} -->\n(.*?)<!-- end {name} -->", TEXT, re.DOTALL)
    assert block is not None
    lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in block[1].splitlines()]
    return {line[0].strip("`"): line[1:] for line in lines[2:]}


def test_every_table_is_what_the_code_says() -> None:
    assert fill(TEXT) == TEXT, "run: python -m tools.protocol_tables docs/protocol.md"


def test_every_table_has_its_place() -> None:
    assert set(re.findall(r"<!-- begin (\w+) -->", TEXT)) == set(tables())


@pytest.mark.parametrize(
    ("name", "samples", "types"),
    [
        ("client", FROM_CLIENT, client.FROM_CLIENT.types),
        ("server", FROM_SERVER, client.FROM_SERVER.types),
        ("node", FROM_NODE, node.FROM_NODE.types),
        ("scheduler", FROM_SCHEDULER, node.FROM_SCHEDULER.types),
    ],
)
def test_every_message_is_there_with_all_its_fields(name: str, samples: list[Sample], types: frozenset[str]) -> None:
    table = rows(name)
    assert set(table) == types
    for sample in samples:
        assert re.findall(r"`(\w+)`", table[sample.type][0]) == [key for key in sample.message if key != "type"]


def test_every_frame_is_there_with_its_lane() -> None:
    table = rows("frames")
    assert list(table) == [frame.__name__ for frame in get_args(frames.AnyFrame)]
    assert {name: cells[1] for name, cells in table.items()} == {
        frame.__name__: frame.lane.name.lower() for frame in frames.FRAMES
    }


def test_every_frame_is_there_with_its_receivers() -> None:
    table = rows("frames")
    assert (table["Dispatch"][0], table["Bounce"][0], table["BrokerBeat"][0]) == ("selector", "edge, selector", "link")
    for frame in frames.FRAMES:
        assert {frames.Role[name.upper()] for name in table[frame.__name__][0].split(", ")} == set(frame.to)


def test_every_error_is_there_with_its_number_and_hint() -> None:
    table = rows("errors")
    assert {cells[0].strip("`"): (int(number), cells[1]) for number, cells in table.items()} == {
        code.name: (code.number, code.hint) for code in ErrorCode
    }


def test_our_own_close_code_is_explained() -> None:
    assert f"| {CloseCode.SUPERSEDED} |" in TEXT


def test_an_unknown_table_is_an_error() -> None:
    with pytest.raises(KeyError):
        fill("<!-- begin nothing -->\n<!-- end nothing -->")
