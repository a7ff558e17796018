"""What `reasonscope inspect` shows of a language model at work on one prompt."""
