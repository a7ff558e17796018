"""What the symbols paper claims, and how it is measured."""
