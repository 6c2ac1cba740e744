"""The store: one field per noun, one typed method for each change that a selector may make in Redis.

Decides nothing. The view (read by snapshots) and the ledger (checked by commits) are separate, see
docs/adr/0003-view-and-ledger.md. Requests and results of the methods are in `lua.store.types`.
"""

from __future__ import annotations

from lua.engine.runner import Runner
from lua.store.commits import CommitStore
from lua.store.deployment import DeploymentStore
from lua.store.jobs import JobStore
from lua.store.nodes import NodeStore
from lua.store.pairing import PairingStore
from lua.store.rooms import RoomStore
from lua.store.sessions import SessionStore
from lua.store.turnovers import TurnoverStore
from mesh.config import Config
from mesh.keys import Keys

__all__ = ["Store"]


class Store:
    """Every access of a selector to Redis. Methods raise or return StoreError when Redis cannot be used."""

    def __init__(self, runner: Runner, keys: Keys, config: Config) -> None:
        self.jobs = JobStore(runner, keys, config)
        self.commits = CommitStore(runner, keys, config, self.jobs)
        self.turnovers = TurnoverStore(runner, keys, config, self.jobs, self.commits)
        self.nodes = NodeStore(runner, keys, config, self.jobs)
        self.sessions = SessionStore(runner, keys, config)
        self.rooms = RoomStore(runner, keys, config)
        self.pairing = PairingStore(runner, keys, config)
        self.deployment = DeploymentStore(runner, keys, config)
