"""Chat rooms: calls to the cell of a room, and messages between the sessions of its members."""
