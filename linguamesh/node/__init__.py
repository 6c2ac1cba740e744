"""The node SDK: a worker that runs jobs of the mesh. `Node` is the entry point."""

from linguamesh.errors import JobFailed, NodeRefused, Unreachable
from linguamesh.node.control import Control
from linguamesh.node.job import Gpu, Job, Result, Usage
from linguamesh.node.node import Node

__all__ = ["Control", "Gpu", "Job", "JobFailed", "Node", "NodeRefused", "Result", "Unreachable", "Usage"]
