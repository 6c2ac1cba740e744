"""Connection: a WebSocket of the edge's listeners, whose messages are handled in the turn in which they arrive."""

from __future__ import annotations

from websockets.asyncio.server import ServerConnection

from mesh.websocket import MessageConnection


class EdgeConnection(MessageConnection, ServerConnection):
    """One connection of a client, node or operator."""
