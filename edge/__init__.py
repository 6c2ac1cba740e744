"""The edge: WebSocket and HTTP for clients and nodes on one side, frames to the mesh on the other."""
