"""Redis keys: the only module that defines them. docs/keys.md lists type, TTL, writers and readers of each."""

from __future__ import annotations

from mesh.cells import CELLS_MAX


class Keys:
    """Key names under one prefix. `cell` is the cell number of the record."""

    def __init__(self, prefix: str = "lingua") -> None:
        self.prefix = prefix
        #: What the keys of each cell begin with; the braces make it their hash tag.
        self._in = [f"{prefix}:{{c{cell:02d}}}:" for cell in range(CELLS_MAX)]

    # nodes
    def node(self, cell: int, node_id: str) -> str:
        """Hash: fields that a commit checks (status, max_jobs, edge, epoch, last_seen_ms), and its state."""
        return f"{self._in[cell]}node:{node_id}"

    def leases(self, cell: int, node_id: str) -> str:
        """Zset: `job#attempt` -> lease end in ms. Its size is the node's load."""
        return f"{self._in[cell]}node:{node_id}:leases"

    def nodes(self, cell: int) -> str:
        """Zset: node id -> last seen, ms."""
        return f"{self._in[cell]}nodes"

    def ledger(self, cell: int) -> str:
        """Hash: node id -> slots in use; `<id>#v`, `#s`, `#m` -> version of its view, speeds, marks; `#version`."""
        return f"{self._in[cell]}ledger"

    def changes(self, cell: int) -> str:
        """Zset: node id -> version of its last change."""
        return f"{self._in[cell]}changes"

    def due(self, cell: int) -> str:
        """Zset: node id -> time of the node's next timeout, ms."""
        return f"{self._in[cell]}due"

    def view(self, cell: int) -> str:
        """Hash: packed NodeCaps, load, status and pools of each node, written by register and heartbeat."""
        return f"{self._in[cell]}view"

    def pool(self, cell: int, pool: str) -> str:
        """Set: node ids of this cell in the pool."""
        return f"{self._in[cell]}pool:{pool}"

    def speeds(self, cell: int) -> str:
        """Hash: node id -> packed speeds per language pair."""
        return f"{self._in[cell]}speeds"

    def marks(self, cell: int) -> str:
        """Hash: node id -> packed services with a missing model, each with the end of its mark."""
        return f"{self._in[cell]}marks"

    def model_words(self, cell: int, node_id: str) -> str:
        """Counter: MODEL_NOT_AVAILABLE reports of the node in this window."""
        return f"{self._in[cell]}model_words:{node_id}"

    # jobs
    def job(self, cell: int, job_id: str) -> str:
        """Hash: state, holder (attempt and node), request (with session and edge), times."""
        return f"{self._in[cell]}job:{job_id}"

    def binding(self, cell: int, request_id: str) -> str:
        """String: attempt, job, node, node_edge, node_epoch. The commit point of a request; in the session's cell."""
        return f"{self._in[cell]}req:{request_id}"

    # sessions
    def session(self, cell: int, session_id: str) -> str:
        """Hash: owner edge, epoch, resume token, tenant, languages, room, whether its client is detached."""
        return f"{self._in[cell]}session:{session_id}"

    def mail(self, cell: int, session_id: str) -> str:
        """Stream: results and posts for a detached session; in the session's cell."""
        return f"{self._in[cell]}session:{session_id}:mail"

    def mailed(self, cell: int, session_id: str) -> str:
        """Hash: key of each mail entry -> its stream id and size, for deduplication."""
        return f"{self._in[cell]}session:{session_id}:mailed"

    # rooms; the cell is the code's, for a reserved code the session's
    def room(self, cell: int, code: str) -> str:
        """Hash: the room's id, creator, creation time and members."""
        return f"{self._in[cell]}room:{code}"

    def rooms(self, cell: int) -> str:
        """Zset: room code -> time of the last speech, ms."""
        return f"{self._in[cell]}rooms"

    def room_plan(self, cell: int, session_id: str) -> str:
        """String: the code that is reserved for the session's new room."""
        return f"{self._in[cell]}room_plan:{session_id}"

    # pairing; the cell is the code's, for requests of a node the node's, for attempts of a client the client's
    def pairing(self, cell: int, code: str) -> str:
        """Hash: the node of a code, and the use that redeemed it."""
        return f"{self._in[cell]}pairing:{code}"

    def pairing_asked(self, cell: int, node_id: str) -> str:
        """Counter: codes that the node requested in this window."""
        return f"{self._in[cell]}pairing_asked:{node_id}"

    def pairing_latest(self, cell: int, node_id: str) -> str:
        """Hash: the node's last request for a code, that code and the one before it."""
        return f"{self._in[cell]}pairing_latest:{node_id}"

    def pairing_wrong(self, cell: int, client: str) -> str:
        """Set: uses of wrong codes by the client in this window."""
        return f"{self._in[cell]}pairing_wrong:{client}"

    # deployment
    def deployment(self) -> str:
        """Hash: settings fixed when the deployment was created (cells)."""
        return f"{self.prefix}:deployment"

    def weights(self) -> str:
        """Hash: version, packed Weights, time and author of the change."""
        return f"{self.prefix}:weights"

    def debounce(self, service_id: str, version: str) -> str:
        """String: set while this service and version is not to be logged again."""
        return f"{self.prefix}:debounce:{service_id}@{version or 'any'}"

    def present(self) -> str:
        """Zset: `kind id` of every live process -> when its presence expires, ms."""
        return f"{self.prefix}:{{presence}}:all"

    def presence(self, kind: str, peer_id: str) -> str:
        """Hash: host, pid, version, started_at_ms of a live process, and the counts of an edge."""
        return f"{self.prefix}:{{presence}}:{kind}:{peer_id}"


def lease_member(job_id: str, attempt: int) -> str:
    """The member of a leases zset: one attempt of one job."""
    return f"{job_id}#{attempt}"
