"""Chooses rows to train on by what a run recorded of them."""
