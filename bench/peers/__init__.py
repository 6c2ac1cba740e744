"""Our mesh, the floor of its shape, and task queues of others, on the same work in one run: `make bench ARGS=peers`."""
