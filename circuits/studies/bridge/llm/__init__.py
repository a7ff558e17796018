"""The bridge paper's experiment on a pretrained language model."""
