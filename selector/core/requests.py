"""Dispatch frames as rows that the kernel reads: names become numbers here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from mesh.frames import Dispatch
from selector.core.columns import NodeTable
from selector.core.kernel import JOB_ROW, NO_ROW, NOT_ASKED
from selector.core.vocabulary import UNKNOWN

AUTO: Final = "auto"
#: Node ids that one job may exclude; more are ignored (attempts are few, so honest edges never come near).
EXCLUDED_MAX: Final = 64


def job_rows(
    dispatches: Sequence[Dispatch], table: NodeTable, tried: Mapping[str, Collection[str]] | None = None
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.int32]]:
    """The kernel's `jobs` and `excluded`. `tried`: request id -> nodes that were just found full."""
    jobs = np.zeros(len(dispatches), dtype=JOB_ROW)
    excluded: list[int] = []
    for index, dispatch in enumerate(dispatches):
        start = len(excluded)
        also = tried.get(dispatch.request_id, ()) if tried else ()
        for node_id in (*dispatch.excluded[:EXCLUDED_MAX], *also):
            row = table.row_of(node_id)
            if row != NO_ROW:
                excluded.append(row)
        services, services_unknown = _services(dispatch, table)
        jobs[index] = (
            dispatch.public,
            table.tenants.find(dispatch.tenant_id),
            services,
            services_unknown,
            *_languages(dispatch, table),
            table.row_of(dispatch.preferred_node) if dispatch.preferred_node else NO_ROW,
            start,
            len(excluded),
            seed_of(dispatch),
        )
    return jobs, np.array(excluded, dtype=np.int32)


def seed_of(dispatch: Dispatch) -> int:
    """What breaks ties for this attempt: the same everywhere, different for every request."""
    return crc32(dispatch.request_id.encode()) << 8 | dispatch.attempt & 0xFF


def _services(dispatch: Dispatch, table: NodeTable) -> tuple[int, bool]:
    bits = 0
    for service in dispatch.services:
        number = table.services.find(service)
        if number == UNKNOWN:
            return 0, True
        bits |= 1 << number
    return bits, False


def _languages(dispatch: Dispatch, table: NodeTable) -> tuple[bool, int, int, int, int, int, int]:
    """(asr_any, asr_a, asr_b, semantic_a, semantic_b, tts_a, tts_b)"""
    find = table.languages.find
    speaks = any(service.lower() == "tts" for service in dispatch.services)
    if dispatch.src_lang.lower() != AUTO:
        source, target = find(dispatch.src_lang), find(dispatch.tgt_lang)
        return False, source, NOT_ASKED, target, NOT_ASKED, target if speaks else NOT_ASKED, NOT_ASKED
    if dispatch.lang_a and dispatch.lang_b:  # two people, either may speak: everything both ways
        a, b = find(dispatch.lang_a), find(dispatch.lang_b)
        return False, a, b, a, b, a if speaks else NOT_ASKED, b if speaks else NOT_ASKED
    target = find(dispatch.tgt_lang)
    return True, NOT_ASKED, NOT_ASKED, target, NOT_ASKED, target if speaks else NOT_ASKED, NOT_ASKED
