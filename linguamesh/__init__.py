"""What users import and run: the SDKs, the `lingua` command and the local stack."""
