"""Brokers move frames between edges and selectors. They know who is alive and how busy, nothing of jobs."""
