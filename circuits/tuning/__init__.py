"""Fine-tuning of pretrained language models: in place, resumable, lean in memory."""
