"""The figures of the analogy study, each from an opened run."""
