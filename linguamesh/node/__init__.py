"""The node SDK: a worker that takes jobs from the mesh. `Node` is the way in."""

from linguamesh.errors import JobFailed, NodeRefused, Unreachable
from linguamesh.node.control import Control
from linguamesh.node.job import Gpu, Job, Result, Usage
from linguamesh.node.node import Node

__all__ = ["Control", "Gpu", "Job", "JobFailed", "Node", "NodeRefused", "Result", "Unreachable", "Usage"]
