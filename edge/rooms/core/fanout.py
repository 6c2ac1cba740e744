"""Fanout: the languages of an utterance and the listeners of each, in a room or alone. Pure.

Each job has its own listeners from the start, so no result can reach the listeners of another job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mesh.frames.sessions import RoomMember


class Fan(NamedTuple):
    """One job: the language to translate into, and the sessions that get its result."""

    target: str
    listeners: tuple[str, ...]


def plan(speaker: str, own_target: str, members: Sequence[RoomMember]) -> list[Fan]:
    """One job per language that the other members prefer; without such members, one for the speaker itself.

    A member who prefers the speaker's own language gets a job too: that is how it gets the text.
    """
    wanted: dict[str, list[str]] = {}
    for member in members:
        target = _normal(member.preferred_lang)
        if target and member.session_id != speaker:
            wanted.setdefault(target, []).append(member.session_id)
    if not wanted:
        return [Fan(_normal(own_target), (speaker,))]
    return [Fan(target, tuple(wanted[target])) for target in sorted(wanted)]


def _normal(lang: str) -> str:
    return lang.strip().lower()
