"""The `reasonscope` command."""
