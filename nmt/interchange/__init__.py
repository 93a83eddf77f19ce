"""Export of models to the formats of other tools, and import of models from another format."""
