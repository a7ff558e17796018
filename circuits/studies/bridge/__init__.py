"""Identity Bridge: what the trained models show, and which edits change them."""
