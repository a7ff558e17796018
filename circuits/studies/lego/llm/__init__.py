"""The measurements of `lego` on a pretrained language model."""
