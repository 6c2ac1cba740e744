"""Options of a load test."""

from __future__ import annotations

import argparse

import pytest

from loadtest.options import LoadOptions, UserKind, add_arguments, parse_mix, parse_options


def parse(*words: str) -> LoadOptions:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parse_options(parser.parse_args(words))


def test_the_defaults_use_every_kind_of_user() -> None:
    options = parse()
    assert set(options.mix) == set(UserKind)
    assert min(options.mix.values()) > 0
    assert options.edges == ["ws://127.0.0.1:5010"]


def test_options_are_parsed() -> None:
    options = parse("--edge", "ws://a:1,ws://b:2", "--mix", "room=2, churn", "--utterance-bytes", "11", "--seed", "7")
    assert options.edges == ["ws://a:1", "ws://b:2"]
    assert options.mix == {UserKind.ROOM: 2, UserKind.CHURN: 1}
    assert options.utterance_bytes == 10  # whole samples
    assert options.seed == 7


def test_a_run_may_have_no_nodes_of_its_own() -> None:
    assert parse("--nodes", "0").nodes == 0


@pytest.mark.parametrize(
    "words",
    [
        ("--mix", "talker=1"),
        ("--mix", "room=0"),
        ("--mix", "room=-1,churn=1"),
        ("--languages", "en"),
        ("--slots", "0"),
        ("--nodes", "-1"),
        ("--service-time", "slow"),
    ],
)
def test_a_wrong_option_is_an_error(words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse(*words)


def test_a_mix_names_kinds_and_weights() -> None:
    assert parse_mix("utterance=3,resume=1") == {UserKind.UTTERANCE: 3, UserKind.RESUME: 1}
