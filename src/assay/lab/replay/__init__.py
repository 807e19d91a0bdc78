"""Judges a stored step again under other settings, without sampling or training."""
