"""Chain-of-thought state tracking: does short training solve long chains?"""
