"""The signals as functions of (model, prompts); what `inspect` shows of one prompt."""
