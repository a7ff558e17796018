"""The figures of the bridge study, each from an opened run."""
