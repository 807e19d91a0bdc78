"""Assay: a post-training lab for small language models."""

__version__ = "0.1.0"
