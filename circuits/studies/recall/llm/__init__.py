"""The measurements of `recall` on a pretrained language model."""
