"""Sessions over raw sockets to a mesh of real processes: opened, resumed and disconnected by the test."""

from __future__ import annotations

from typing import Any

from websockets.asyncio.client import connect

from tests.support.processes.edge import Talk

INIT = {
    "type": "session_init",
    "client_version": "test",
    "platform": "web",
    "src_lang": "en",
    "tgt_lang": "es",
    "audio_formats": ["pcm16"],
    "resumable": True,
}
#: 100 ms each, all different.
PIECES = [bytes([number, 1]) * 1_600 for number in range(1, 40)]

#: Every socket that a test opened. Some are aborted, some lose their edge.
_OPENED: list[Talk] = []


async def opened(url: str, **fields: Any) -> tuple[Talk, dict[str, Any]]:
    """A client with a session, and its session_init_ack."""
    talk = Talk(await connect(url.replace("http", "ws", 1) + "/ws/session", max_size=None))
    _OPENED.append(talk)
    await talk.send({**INIT, **fields})
    ack = await talk.receive("session_init_ack")
    talk.id = ack["session_id"]
    return talk, ack


async def ended(talk: Talk, index: int) -> dict[str, Any]:
    """The final message of an utterance. All results up to it are acknowledged."""
    while True:
        message = await talk.receive_any("translation_result", "missing_result")
        await talk.send({"type": "result_ack", "session_id": talk.id, "utterance_index": message["utterance_index"]})
        if message["utterance_index"] == index:
            return message


def abort(talk: Talk) -> None:
    """Lose the connection without a close frame."""
    talk.socket.transport.abort()


async def abort_all() -> None:
    """Close every socket that was opened, before its event loop is closed."""
    while _OPENED:
        talk = _OPENED.pop()
        abort(talk)
        await talk.socket.wait_closed()
