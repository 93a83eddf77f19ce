"""The models: attention, the Transformer, and the small interface that training and search use."""
