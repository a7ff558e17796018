"""A prompt as a chat model was trained to read it: inside the tokenizer's template."""

from dataclasses import replace

from circuits.datasets.row import Row
from trained.errors import BadInput

from .language_model import LanguageModel


def as_chat(model: LanguageModel, text: str) -> str:
    """The text as a user's message, up to where the model's answer begins.

    `BadInput` if the tokenizer has no template, or one that refuses the message.
    """
    from jinja2 import TemplateError

    tokenizer = model.tokenizer
    if getattr(tokenizer, "chat_template", None) is None:
        raise BadInput(f"the tokenizer of {model.name} has no chat template")
    try:
        chat = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}],
            tokenize=False,
            add_generation_prompt=True,
        )
    except (TemplateError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise BadInput(f"the chat template of {model.name} fails: {reason}") from error
    # Some tokenizers add their first token to every text: once is enough.
    first, own = tokenizer.bos_token, tokenizer("a")["input_ids"]
    doubled = first is not None and own[:1] == [tokenizer.bos_token_id]
    return str(chat).removeprefix(first) if doubled else str(chat)


def row_as_chat(model: LanguageModel, row: Row) -> Row:
    """A row whose prompts are messages; its roles are where they were in the prompt."""
    chat = as_chat(model, row.prompt)
    shift = chat.rfind(row.prompt)
    if shift < 0 and row.roles:
        raise BadInput(
            f"{row.where}: the chat template of {model.name} changes the prompt, so "
            "that its roles cannot be found: leave out roles, or spaces at its ends"
        )
    return replace(
        row,
        prompt=chat,
        corrupt=None if row.corrupt is None else as_chat(model, row.corrupt),
        roles={name: (a + shift, b + shift) for name, (a, b) in row.roles.items()},
    )
