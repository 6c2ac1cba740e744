"""Brokers move frames between edges and selectors. They know the live peers and their credit, nothing of jobs."""
