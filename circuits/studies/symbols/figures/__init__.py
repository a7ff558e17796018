"""The figures of the symbols study, each from an opened run."""
