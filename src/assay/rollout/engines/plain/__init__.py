"""Samples any causal language model through Transformers' own forward and cache."""
