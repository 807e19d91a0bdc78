"""The reader of Markdown logs: blocks, then what is recognised in them, then one record."""
