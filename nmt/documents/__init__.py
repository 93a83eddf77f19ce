"""Text as people have it: markup around and inside of sentences."""
