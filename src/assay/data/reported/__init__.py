"""What others reported: the typed record of it, and one reader for each format of file."""
