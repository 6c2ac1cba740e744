"""What one hop costs: a WebSocket, ZeroMQ, a broker, Redis."""
