"""Selectors: stateless workers that choose a node for each utterance and commit the choice in Redis."""
