"""Chain-of-thought state tracking: what attention retrieves, and how far it holds."""
