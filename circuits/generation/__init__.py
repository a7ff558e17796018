"""Signals while a model writes: by token, and by step of a chain of thought."""
