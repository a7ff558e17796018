"""Signals: pure functions of tensors, and the figures that draw them."""
