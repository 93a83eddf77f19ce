"""The preparation of parallel text for training: download, check, repair and split. Does not import torch."""
