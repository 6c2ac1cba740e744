"""Batches of script calls: calls of one script and one hash slot become one command, its reply one answer per call."""

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
    """Collects the answers of one call_many; `done` is set with the last one."""

    __slots__ = ("answers", "done", "pending")

    def __init__(self, count: int, done: asyncio.Future[None]) -> None:
        self.answers: list[Answer] = [StoreError("not answered")] * count
        self.pending = count
        self.done = done


class PendingCall:
    """One call without an answer yet: queued, sent or waiting for its retry."""

    __slots__ = ("args", "group", "index", "is_answered", "keys", "retries", "script", "slot")

    def __init__(self, script: Script, call: Call, slot: int, group: CallGroup, index: int) -> None:
        self.script = script
        self.keys = call.keys
        self.args = script.arguments(call.args)
        self.slot = slot
        self.group = group
        self.index = index
        self.retries = 0
        self.is_answered = False

    def answer(self, answer: Answer) -> bool:
        """Set the answer; False if there was one already."""
        if self.is_answered:
            return False
        self.is_answered = True
        group = self.group
        group.answers[self.index] = answer
        group.pending -= 1
        if group.pending == 0 and not group.done.done():
            group.done.set_result(None)
        return True


Batch = list[PendingCall]


def batches_of(calls: Iterable[PendingCall], size_max: int) -> list[Batch]:
    """The calls grouped by script and hash slot, in order; at most `size_max` per batch."""
    groups: dict[tuple[str, int], list[Batch]] = {}
    for call in calls:
        group = groups.setdefault((call.script.name, call.slot), [[]])
        if len(group[-1]) == size_max:
            group.append([])
        group[-1].append(call)
    return [batch for group in groups.values() for batch in group]


def evalsha(batch: Batch) -> Command:
    """The command that runs the batch on a server that has cached the script."""
    return _command("EVALSHA", batch[0].script.sha, batch)


def evaluate(batch: Batch) -> Command:
    """The command that runs the batch and loads the script into the server's cache."""
    return _command("EVAL", batch[0].script.source, batch)


def _command(verb: str, script: str, batch: Batch) -> Command:
    keys: list[str] = []
    args: list[str | int | bytes] = [len(batch)]
    for call in batch:
        keys += call.keys
        args += (len(call.keys), len(call.args))
        args += call.args
    return [verb, script, len(keys), *keys, *args]


def read_answer(script: Script, reply: Any) -> Answer:
    """One call's reply: a list as the header declares it, or StoreError with the script's error text."""
    if not isinstance(reply, list):
        return StoreError(f"{script.name}: {reply.decode() if isinstance(reply, bytes) else reply}")
    try:
        return script.read(reply)
    except (ValueError, TypeError, AttributeError) as error:
        return StoreError(f"{script.name} replied {reply!r}, which does not match its header: {error}")


def sure(answer: T | StoreError) -> T:
    """The answer; raises it if it is a StoreError."""
    if isinstance(answer, StoreError):
        raise answer
    return answer
