"""Samples in this process: shared prompts, a full batch, own layers."""
