"""Load tests with locust: sessions, rooms and nodes on real WebSockets, with limits. See docs/performance.md."""
