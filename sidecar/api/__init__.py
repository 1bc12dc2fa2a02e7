"""The admin API: one router per subject."""
