"""Batches of script calls: calls of one script and one hash slot become one command, its reply one answer per call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from lua.engine.connection import Command
from lua.engine.loader import Script
from mesh.errors import StoreError

Answer = list[Any] | StoreError
T = TypeVar("T")


class Call(NamedTuple):
    """One call of a script: its keys in header order, its arguments by header name or as a list in header order."""

    keys: list[str]
    args: Mapping[str, Any] | list[Any]


class CallGroup(msgspec.Struct, eq=False):
    """Collects the answers of one call_many; `done` is set with the last one."""

    answers: list[Answer]
    #: How many answers are missing.
    pending: int
    done: asyncio.Future[None]


class PendingCall(msgspec.Struct, eq=False):
    """One call without an answer yet: queued, sent or waiting for its retry. `args`: in header order."""

    script: Script
    keys: list[str]
    args: list[str | int | bytes]
    slot: int
    group: CallGroup
    index: int
    retries: int = 0
    is_answered: bool = False


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


def command_of(batch: Batch, *, load: bool = False) -> Command:
    """The command that runs the batch: by the script's digest, or with `load` by its source, which Redis caches."""
    script = batch[0].script
    keys: list[str] = []
    args: list[str | int | bytes] = [len(batch)]
    for call in batch:
        keys += call.keys
        args += (len(call.keys), len(call.args))
        args += call.args
    verb, code = ("EVAL", script.source) if load else ("EVALSHA", script.sha)
    return [verb, code, len(keys), *keys, *args]


def answer_all(calls: Iterable[PendingCall], answers: Iterable[Answer]) -> int:
    """Give each call its answer, unless it has one already; returns how many got theirs."""
    answered = 0
    for call, answer in zip(calls, answers, strict=True):
        if call.is_answered:
            continue
        call.is_answered = True
        answered += 1
        group = call.group
        group.answers[call.index] = answer
        group.pending -= 1
        if group.pending == 0 and not group.done.done():
            group.done.set_result(None)
    return answered


def sure(answer: T | StoreError) -> T:
    """The answer; raises it if it is a StoreError."""
    if isinstance(answer, StoreError):
        raise answer
    return answer
