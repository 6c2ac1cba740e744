"""The shared vocabulary: frames, messages, keys, tables and config. Imports nothing else of ours."""
