"""What `import assay` offers to programs and notebooks, and what the verbs of `cli` call."""
