"""Calls of one script and one slot, as one command; and its reply, as one answer per call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from lua.engine.connection import Command
from lua.engine.loader import Script
from mesh.errors import StoreError

Answer = list[Any] | StoreError
T = TypeVar("T")


class Call(NamedTuple):
    """One call of a script: its keys in header order, its arguments by header name."""

    keys: list[str]
    args: Mapping[str, Any]


class CallGroup:
    """The answers of one call_many, as they come in."""

    __slots__ = ("answers", "done", "open")

    def __init__(self, count: int, done: asyncio.Future[None]) -> None:
        self.answers: list[Answer] = [StoreError("not answered")] * count
        self.open = count
        self.done = done


class PendingCall:
    """One call on its way."""

    __slots__ = ("answered", "keys", "place", "script", "slot", "ticket", "tries", "words")

    def __init__(self, script: Script, call: Call, slot: int, ticket: CallGroup, place: int) -> None:
        self.script = script
        self.keys = call.keys
        self.words = script.arguments(call.args)
        self.slot = slot
        self.ticket = ticket
        self.place = place
        self.tries = 0
        self.answered = False

    def answer(self, answer: Answer) -> bool:
        """Hand the answer in; False if there was one already."""
        if self.answered:
            return False
        self.answered = True
        ticket = self.ticket
        ticket.answers[self.place] = answer
        ticket.open -= 1
        if ticket.open == 0 and not ticket.done.done():
            ticket.done.set_result(None)
        return True


Batch = list[PendingCall]


def batches_of(waiting: Iterable[PendingCall], size_max: int) -> list[Batch]:
    """The calls grouped by script and slot, in order, at most `size_max` together."""
    groups: dict[tuple[str, int], list[Batch]] = {}
    for one in waiting:
        group = groups.setdefault((one.script.name, one.slot), [[]])
        if len(group[-1]) == size_max:
            group.append([])
        group[-1].append(one)
    return [batch for group in groups.values() for batch in group]


def evalsha(batch: Batch) -> Command:
    """The command that runs the batch, for a server that has the script."""
    return _command("EVALSHA", batch[0].script.sha, batch)


def evaluate(batch: Batch) -> Command:
    """The command that runs the batch and leaves the script with the server."""
    return _command("EVAL", batch[0].script.source, batch)


def _command(verb: str, script: str, batch: Batch) -> Command:
    keys: list[str] = []
    words: list[str | int | bytes] = [len(batch)]
    for one in batch:
        keys += one.keys
        words += (len(one.keys), len(one.words))
        words += one.words
    return [verb, script, len(keys), *keys, *words]


def read_answer(script: Script, reply: Any) -> Answer:
    """One call's reply: a list by the header, or the error text that the script left in its place."""
    if not isinstance(reply, list):
        return StoreError(f"{script.name}: {reply.decode() if isinstance(reply, bytes) else reply}")
    try:
        return script.read(reply)
    except (ValueError, TypeError, AttributeError) as error:
        return StoreError(f"{script.name} answered {reply!r}, not what its header says: {error}")


def sure(answer: T | StoreError) -> T:
    """The answer; raises it if it is an error."""
    if isinstance(answer, StoreError):
        raise answer
    return answer
