"""Frames about jobs: dispatch of a request, assignment to a node, progress, result and cancellation.

Edge A owns the session, edge B owns the node. docs/architecture.md shows the way of one job.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from mesh.frames.base import Frame, Lane, Role


class Dispatch(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge A -> selector: select a node for this request. Payload: work (a Work struct), audio.

    Idempotent; retried with the same request_id and attempt until `Placed`, its result, `Refused` or `Undone`.
    """

    request_id: str
    attempt: int  # 1 at first; a higher attempt replaces the binding of a lower one
    session_id: str
    utterance_index: int
    edge: str  # edge A
    tenant_id: str
    src_lang: str
    tgt_lang: str
    lang_a: str
    lang_b: str
    services: list[str]
    public: bool
    audio_ms: int
    deadline_ms: int  # wall clock
    trace_id: str
    excluded: list[str] = []  # node ids
    preferred_node: str = ""  # paired with the session
    warm_node: str = ""  # ran the session's last utterance
    auto_langs: list[str] = []  # src "auto": candidate languages of the speech
    models: list[str] = []  # ids of models that the node must have
    region: str = ""
    gpu_tier: str = ""
    #: True for a hedge: the attempt before this one continues.
    beside: bool = False
    #: Sends of this attempt before this one; in a resumed session one more, for the edge before. 0: no selector has
    #: seen the attempt.
    resend: int = 0
    #: The session's owner epoch at edge A.
    session_epoch: int = 0
    #: When edge A had the whole utterance, by its wall clock.
    arrived_us: int = 0


class Work(msgspec.Struct, frozen=True, array_like=True):
    """Content of job_assign, for the node's edge; opaque to brokers and selectors."""

    src_lang: str
    tgt_lang: str
    audio_format: str
    sample_rate: int
    pipeline: dict[str, bool]
    trace_id: str
    dialect: str | None = None
    features: dict[str, bool] | None = None
    mode: str | None = None
    lang_a: str | None = None
    lang_b: str | None = None
    auto_langs: list[str] | None = None
    enable_streaming_asr: bool | None = None
    partial_update_interval_ms: int | None = None
    group_id: str | None = None
    part_index: int | None = None
    context_text: str | None = None
    padding_ms: int | None = None
    is_manual_cut: bool = False
    is_pause_triggered: bool = False
    is_timeout_triggered: bool = False
    is_max_duration_triggered: bool = False
    turn_id: str | None = None


class Assign(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Selector -> edge B: run this job. Payload: work, audio. Reply: the result to edge A, or AssignFailed."""

    job_id: str
    attempt: int
    node_id: str
    node_epoch: int
    request_id: str
    session_id: str
    utterance_index: int
    session_edge: str
    deadline_ms: int
    trace_id: str
    pair: str = ""  # of pair_of; it and audio_ms return in Finished, for the speed model
    audio_ms: int = 0
    #: Time from now after which the result is late for that node, and the job may be hedged.
    late_after_ms: int = 0
    #: The session's owner epoch at `session_edge`.
    session_epoch: int = 0
    #: The selector that placed the job: Finished goes there, because requests that wait for the slot wait there.
    selector: str = ""
    #: Sender's wall clock, and microseconds of the stages so far: EDGE_IN to COMMIT of mesh.words.LatencyStage.
    sent_us: int = 0
    stages: list[int] = []


class Placed(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Edge B -> edge A: the node has the job, and there is no result yet. Ends the retries of Dispatch.

    Sent `edge.job_event_delay_ms` after the job was written: most results arrive before, and need no Placed.
    """

    request_id: str
    attempt: int
    job_id: str
    node_id: str
    session_id: str
    utterance_index: int
    late_after_ms: int = 0


class AssignFailed(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.CONTROL):
    """Edge B -> selector: the node does not run the job; dispatch it elsewhere.

    "node_gone" comes after the reconnect grace: a node that has reconnected elsewhere (newer epoch) keeps the job.
    """

    job_id: str
    attempt: int
    node_id: str
    node_epoch: int
    request_id: str
    session_edge: str
    reason: str  # mesh.words.AssignFailure


class Refused(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Selector -> edge A: no node is available. Retry after `retry_after_ms`; 0 = final."""

    request_id: str
    attempt: int
    code: str
    reason: str
    #: mesh.words.FilterName -> nodes that it removed.
    removed: dict[str, int]
    retry_after_ms: int
    #: The node that came closest, and its obstacle as a sentence.
    nearest_node: str = ""
    nearest: str = ""
    waited_ms: int = 0


class Waiting(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Selector -> edge A: no node is free; the request is in the wait queue. Retry Dispatch after `ask_again_ms`."""

    request_id: str
    attempt: int
    reason: str
    ask_again_ms: int


class Undone(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Selector -> edge A: the attempt failed; dispatch attempt + 1."""

    request_id: str
    attempt: int
    job_id: str
    node_id: str
    reason: str  # mesh.words.UNDONE_REASONS
    exclude_node: bool


class JobEvent(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.CONTROL):
    """Edge B -> selector: progress of the job. `event`: actions of mesh.states.job in order, separated by blanks."""

    job_id: str
    attempt: int
    node_id: str
    event: str


class Notice(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Edge B -> edge A, best effort: progress for the client. Payload of asr_partial: the node's JSON text."""

    session_id: str
    utterance_index: int
    job_id: str
    attempt: int
    event: str  # mesh.words.NoticeEvent
    request_id: str


class Finished(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.CONTROL):
    """Edge B -> the selector of the job: the node is done with it. The result itself goes directly to edge A (Push).

    Retried, to any selector of the job's cell, until `FinishedAck`.
    """

    job_id: str
    attempt: int
    node_id: str
    node_edge: str
    success: bool
    #: Time from writing the job to the node until its result; -1 = unknown.
    took_ms: int = -1
    pair: str = ""
    audio_ms: int = 0


class FinishedJob(NamedTuple):
    """One attempt at one node."""

    node_id: str
    job_id: str
    attempt: int


class FinishedAck(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Selector -> edge B: these jobs are finished and their slots released. Ends the retries of Finished."""

    jobs: list[FinishedJob]


class JobDone(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge B -> selector: a result that edge A did not acknowledge, or whose session's edge is unknown.

    Payload: as in Push. The selector finishes the job, looks up the owner of the session and pushes the result there,
    or parks it in the session's mail. Retried until `ResultAcks` names it.
    """

    job_id: str
    attempt: int
    node_id: str
    node_edge: str
    request_id: str
    session_id: str
    utterance_index: int
    session_edge: str
    success: bool
    #: Sends of the result before this one; above 0 the selector looks up the session's owner.
    resend: int = 0
    #: Time from writing the job to the node until its result; -1 = unknown.
    took_ms: int = -1
    pair: str = ""
    audio_ms: int = 0


class Push(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Edge B, or a selector on JobDone -> edge A, the owner of the session: a result. Payload: the node's job_result.

    Edge A fences it by request id and attempt, and acknowledges it to `node_edge`.
    """

    job_id: str
    attempt: int
    node_id: str
    node_edge: str
    request_id: str
    session_id: str
    utterance_index: int
    #: The session's owner epoch in the Assign; 0 = unknown.
    session_epoch: int = 0
    #: Sender's wall clock, and microseconds of the stages so far: EDGE_IN to NODE of mesh.words.LatencyStage.
    sent_us: int = 0
    stages: list[int] = []


class ResultAck(NamedTuple):
    """Acknowledges one result: "no_session" means that its session is not at the sender."""

    node_id: str
    job_id: str
    attempt: int
    verdict: str  # mesh.words.ResultVerdict


class ResultAcks(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Edge A or selector -> edge B: acknowledges results and ends their retries. Gathered: one frame for many."""

    acks: list[ResultAck]


class Cancel(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.CONTROL):
    """Edge A -> selector: cancel the job; no client waits for its result."""

    request_id: str
    job_id: str
    attempt: int
    node_id: str
    session_id: str
    reason: str  # mesh.words.CancelReason


class CancelJob(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Selector -> edge B: send the node job_cancel (best effort)."""

    job_id: str
    attempt: int
    node_id: str
    trace_id: str
    reason: str


def pair_of(src_lang: str, tgt_lang: str) -> str:
    """The name of a directed language pair: `zh>en`."""
    return f"{src_lang}>{tgt_lang}"
