"""The measurements of `symbols` on a pretrained language model."""
