"""Sessions of clients: sockets on /ws/session, one actor per session, and the core that decides for it."""
