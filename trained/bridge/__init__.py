"""Identity Bridge: does a zero-hop task let one-hop facts compose?"""
