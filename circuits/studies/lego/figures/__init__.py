"""The figures of the lego study, each from an opened run."""
