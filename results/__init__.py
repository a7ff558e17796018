"""Verdicts of long runs and the logs of searches for open settings, as JSON.

`<study>.json` is what `reasonscope confirm <study> --preset paper --json` wrote,
`<study>-quick.json` the same at the quick preset, `<study>-llm.json` on a language
model. README's table is made from them (`python -m scripts.scores`).
"""
