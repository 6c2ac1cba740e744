"""The local stack of `lingua up`: real processes on this machine, and their Redis."""
