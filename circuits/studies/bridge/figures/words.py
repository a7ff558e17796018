"""What arms are called in figures, for readers who do not know the code."""

TASKS = {"identity": "with identity task", "none": "without identity task"}
"""The zero-hop task, a bridge that names itself: [b] -> b."""
MODELS = {
    ("small", "identity"): "small initial weights, identity task",
    ("small", "none"): "small initial weights, no identity task",
    ("standard", "identity"): "standard initial weights, identity task",
    ("decay", "identity"): "weight decay, identity task",
    ("std", "identity"): "initial std 0.02, identity task",
}
