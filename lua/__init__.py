"""Lua scripts, the engine that loads and runs them, and `lua.store.Store`, the typed access of selectors to Redis."""
