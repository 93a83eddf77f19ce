"""Models for other tools and from them."""
