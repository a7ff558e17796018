"""Prompts in files: what the rows may hold, and how each format is read."""
