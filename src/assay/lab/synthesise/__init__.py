"""Makes rows with a teacher, proves each by the task, and says what was made."""
