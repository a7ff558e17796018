"""The analogy study: out-of-context transfer of an attribute between entities."""
