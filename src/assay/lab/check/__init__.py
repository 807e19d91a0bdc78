"""The checks of `assay check`: one file for each kind of problem."""
