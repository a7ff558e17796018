"""The measurements of `analogy` on a pretrained language model."""
