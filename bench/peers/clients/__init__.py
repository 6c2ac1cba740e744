"""Clients and workers of the comparison. Each file is a script for an interpreter that need not have this project."""
