"""Feature resemblance: do shared properties align entities, and does that transfer?"""
