"""The waterfall of `lingua translate --timing`."""

from __future__ import annotations

from linguamesh.cli.waterfall import BAR_WIDTH, waterfall
from mesh.words import LatencyStage


def test_each_bar_begins_where_the_one_before_ended() -> None:
    assert waterfall({"broker": 500, "edge_in": 500, "node": 3_000}).splitlines() == [
        "edge_in       0.500 ms  █████                                     at the session's edge",
        "broker        0.500 ms       █████                                to the selector",
        "node          3.000 ms            ██████████████████████████████  on the node",
        "sum           4.000 ms",
    ]


def test_every_stage_has_a_line_within_the_width() -> None:
    lines = waterfall({stage.value: 7 * place**4 for place, stage in enumerate(LatencyStage)}).splitlines()
    assert len(lines) == len(LatencyStage) + 1
    assert all(len(line[24 : 24 + BAR_WIDTH].rstrip()) <= BAR_WIDTH for line in lines)
    assert "█" not in lines[0], "a stage that took no time has no bar"
    assert all("█" in line for line in lines[1:-1]), "any other has one"
    assert lines[-2].count("█") < BAR_WIDTH


def test_a_stage_of_a_newer_mesh_comes_last() -> None:
    assert waterfall({"teleport": 1, "node": 1}).splitlines()[1].startswith("teleport")


def test_without_stages_it_says_so() -> None:
    assert waterfall({}) == "stages: unknown; this mesh does not report them"
