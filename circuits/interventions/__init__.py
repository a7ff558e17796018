"""What happens to which part of a model: ablate, knock out, patch, attribute."""
