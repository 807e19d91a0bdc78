"""What `assay check` looks at: one file for each kind of question."""
