"""A run's directory: the code that reads and writes its files."""
