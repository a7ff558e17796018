"""The measurements of `bridge` on a pretrained language model."""
