"""How much one machine carries, at what latency, and what bounds it: `make bench ARGS=capacity`."""
