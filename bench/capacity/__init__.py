"""How much one machine carries, at what latency, and what bounds it: `python -m bench capacity`."""
