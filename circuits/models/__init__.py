"""Pretrained language models: files, opening, prompts, fine-tuned copies."""
