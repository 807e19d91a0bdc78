"""Answers items, records and judges the answers, and selects checkpoints by them."""
