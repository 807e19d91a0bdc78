"""The generic reader of logs: Markdown and CSV tables, lists, counts and short conclusions."""
