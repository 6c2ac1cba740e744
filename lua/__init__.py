"""The scripts that commit, their loader and their runner. Selectors and operator commands use `lua.store.Store`."""
