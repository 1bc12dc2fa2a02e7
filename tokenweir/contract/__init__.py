"""The Redis contract: every key, every record, written once for both languages."""
