"""Objectives: pure functions of scores and a packed batch, one training method a file."""
