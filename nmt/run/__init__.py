"""A run's directory: the only reader and writer of its files."""
