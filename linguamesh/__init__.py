"""The SDKs, the `lingua` command and the local stack: the packages that users import and run."""
