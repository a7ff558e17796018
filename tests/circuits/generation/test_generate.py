"""Signals while a model writes: those of one pass over the finished text."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from circuits.generation.chain import Chain
from circuits.generation.generate import generate
from circuits.hooks import Signal, measure
from circuits.models import open as pretrained
from circuits.models.language_model import LanguageModel
from tests.random_models import letter_tokenizer, random_model
from trained.errors import BadInput

PROMPTS = ["abcdefg", "hijklmnopq"]
STEPS = "[a-huz]"
"""Random models have no sentences: these letters end a step."""

N = 12


def opened(family: str, dtype: torch.dtype = torch.float32) -> LanguageModel:
    hf = random_model(family).requires_grad_(False).to(dtype)
    for module in hf.modules():
        if dtype == torch.float64 and type(module).__name__ == "LlamaRMSNorm":
            # A Llama works out its norms in single precision.
            module.forward = partial(
                nn.functional.rms_norm,
                normalized_shape=(32,),
                weight=module.weight,
                eps=module.variance_epsilon,
            )
    tokenizer = letter_tokenizer()
    # Nothing ends a text before it is long enough.
    hf.generation_config.eos_token_id = tokenizer.eos_token = None
    return pretrained.wrap(hf, tokenizer)


def written(model: LanguageModel, **options: Any) -> tuple[Chain, ...]:
    options = {"steps": STEPS, "signals": ("attention", "logit", "lens"), **options}
    return generate(model, PROMPTS, N, **options)


def teacher_forced(chain: Chain, kind: Any, see: Callable[..., Tensor]) -> Tensor:
    """By layer, a quantity at the positions from which the tokens were chosen."""
    signal = Signal(kind, see, ("position", "rest"))
    found = measure(chain.model, [chain.batch], {"found": signal})["found"]
    first, end = chain.n_prompt - 1, chain.batch.tokens.shape[1] - 1
    return found.values[0, :, first:end]


def forced_mass(chain: Chain, names: tuple[str, ...]) -> Tensor:
    def see(pattern: Tensor, batch: Any) -> Tensor:
        masses = [pattern[..., batch.role(name)[0]].sum(-1) for name in names]
        return torch.stack(masses, -1).transpose(1, 2).flatten(2)

    flat = teacher_forced(chain, "pattern", see)
    return flat.unflatten(-1, (chain.model.n_heads, -1)).transpose(1, 2)


def forced_lens(chain: Chain) -> tuple[Tensor, Tensor]:
    """The written tokens' logits and log-probabilities after every layer."""

    def see(residual: Tensor, batch: Any) -> Tensor:
        logits = chain.model.readout.logits(residual[:, :-1])
        both = torch.stack([logits, logits.log_softmax(-1)], -1)
        own = batch.tokens[:, 1:, None, None].expand(-1, -1, -1, 2)
        found = both.gather(2, own)[:, :, 0]
        return nn.functional.pad(found, (0, 0, 0, 1))

    return teacher_forced(chain, "resid_post", see).unbind(-1)


def close(found: Tensor, expected: Tensor, share: float) -> None:
    assert found.shape == expected.shape
    size = float(expected.abs().max())
    assert float((found - expected).abs().max()) <= share * size


CASES = [
    *((family, torch.float32, 1e-5) for family in ("gpt2", "llama", "mistral")),
    *((family, torch.float64, 1e-10) for family in ("gpt2", "llama")),
]


@pytest.mark.parametrize(("family", "dtype", "share"), CASES)
def test_signals_are_those_of_one_pass_over_the_text(
    family: str, dtype: torch.dtype, share: float
) -> None:
    """Also padded, also behind windows that the cache has forgotten.

    The tokens are those that transformers writes after each prompt alone, and the
    masses on a partition of the keys sum to one.
    """
    model = opened(family, dtype)
    for text, chain in zip(PROMPTS, written(model), strict=True):
        own = model.prompts([text]).tokens
        with torch.no_grad():
            expected = model.module.generate(own, max_new_tokens=N, do_sample=False)
        assert chain.batch.tokens.tolist() == expected.tolist()
        assert chain.mass is not None
        assert chain.logit is not None
        assert chain.log_prob is not None
        names = tuple(map(str, chain.mass.labels["key"]))
        close(chain.mass.values, forced_mass(chain, names).to(dtype), share)
        total = chain.mass.select(key=chain.parts).values.sum(-1)
        close(total, torch.ones_like(total), share)
        logit, log_prob = forced_lens(chain)
        close(chain.logit.values[1:, :, 0], logit.to(dtype), share)
        close(chain.log_prob.values[1:, :, 0], log_prob.to(dtype), share)
        assert len(chain.steps) > 1


@pytest.mark.parametrize("backend", ["bridge", "nnsight"])
def test_other_backends_read_everything_again_and_see_the_same(backend: str) -> None:
    model = opened("llama")
    other = pretrained.wrap(model.module, model.tokenizer, backend=backend)
    options = {"steps": STEPS, "signals": ("attention", "logit")}
    for own, found in zip(
        generate(model, PROMPTS, 4, **options),
        generate(other, PROMPTS, 4, **options),
        strict=True,
    ):
        assert own.text == found.text
        for name in ("mass", "logit"):
            close(getattr(found, name).values, getattr(own, name).values, 1e-5)


def uniform(model: LanguageModel) -> LanguageModel:
    """Every token looks at all before it alike, and no token is the likeliest."""
    hf = copy.deepcopy(model.module)
    for layer in hf.model.layers:
        layer.self_attn.q_proj.weight.data.zero_()
    hf.lm_head.weight.data.zero_()
    return pretrained.wrap(hf, model.tokenizer)


def test_values_worked_out_by_hand() -> None:
    """Five tokens, two of them named; equal logits: token 0 is written each time."""
    model = uniform(opened("llama"))
    (chain,) = generate(
        model,
        ["abcde"],
        3,
        signals=("attention", "logit", "lens"),
        keys=["bc"],
        targets=["z"],
    )
    assert chain.mass is not None
    assert chain.mass.labels["key"] == ("first", "bc", "rest", "step 1")
    # The query is the token before: it sees 5, then 6, then 7 keys.
    expected = [[1 / n, 2 / n, 2 / n, (n - 5) / n] for n in (5, 6, 7)]
    for values in chain.mass.values.flatten(0, 1):
        torch.testing.assert_close(values, torch.tensor(expected))
    assert chain.log_prob is not None
    assert chain.rank is not None
    assert chain.log_prob.labels["target"] == ("written", "z")
    size = model.d_vocab
    for found, value in (
        (chain.log_prob, -torch.tensor(float(size)).log()),
        (chain.rank, torch.tensor((size + 1) / 2)),
    ):
        torch.testing.assert_close(found.values, value.expand(4, 3, 2))
    by_step = chain.mass_by_step()
    mean = torch.tensor(expected).mean(0)
    torch.testing.assert_close(by_step.values[0, 0, 0], mean)


def test_keys_that_nobody_can_see_have_no_mass() -> None:
    """The negative control: windows of four tokens never reach the prompt's start."""
    for chain in written(opened("mistral")):
        assert chain.mass is not None
        first = chain.mass.select(key="first").values
        assert float(first.abs().max()) == 0.0


def test_named_targets_are_followed_beside_what_is_written() -> None:
    model = opened("gpt2")
    (chain,) = generate(model, ["abcde"], 4, targets=["f", "g"])
    assert chain.logit is not None
    logits = model(chain.batch.tokens)[0, chain.n_prompt - 1 : -1]
    for number, name in enumerate("fg", 1):
        expected = logits[:, model.token(name)]
        torch.testing.assert_close(chain.logit.values[-1, :, number], expected)


def test_roles_of_a_step_are_keys_of_the_steps_after_it() -> None:
    model = opened("llama")
    chains = written(model, roles=r"(?P<state>\S+)\s*$")
    for chain in chains:
        assert chain.mass is not None
        second = chain.step(2)
        assert chain.span_text("step 1 state") == chain.step(1).text[-1]
        later = [t for t in range(N) if t >= second.tokens.start + 1]
        own = chain.mass.select(key="step 1 state").values
        expected = forced_mass(chain, ("step 1 state",))[..., 0]
        torch.testing.assert_close(own[:, :, later], expected[:, :, later].float())
        assert not own[:, :, : second.tokens.start].any()
        lens = chain.lens_by_step("state")
        assert lens.axes == ("layer", "step")
        at = second.roles["state"][0]
        assert chain.log_prob is not None
        expected = chain.log_prob.values[:, at, 0]
        torch.testing.assert_close(lens.values[:, 1], expected)


def test_the_model_s_own_end_is_the_last_token() -> None:
    model = opened("gpt2")
    free = generate(model, PROMPTS, N, signals=())
    end = int(free[0].batch.tokens[0, free[0].n_prompt + 2])
    model.module.generation_config.eos_token_id = [end]
    first, second = generate(model, PROMPTS, N, steps=STEPS)
    said = first.batch.tokens[0, first.n_prompt :].tolist()
    assert end in said[:3]
    assert said.index(end) == len(said) - 1
    assert first.mass is not None
    assert first.mass.values.shape[2] == len(said)
    whole = free[1].batch.tokens[0].tolist()
    own = second.batch.tokens[0].tolist()
    assert own == whole[: len(own)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_tokens": 0}, "0 new tokens after 7"),
        ({"n_tokens": 40}, "choose from: 1 to 26"),
        ({"signals": ["smell"]}, "'smell'; choose from: attention, logit, lens"),
        ({"steps": "("}, "no regular expression"),
        ({"steps": "x*"}, "is found in nothing"),
        ({"roles": "x"}, "has no groups"),
        ({"keys": "abc"}, "several texts"),
        ({"keys": ["zzz"]}, "'zzz' is not in"),
        ({"targets": ["abc"]}, "must be one token"),
        ({"chat": True}, "has no chat template"),
    ],
)
def test_bad_input_names_the_value(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words.replace("(", r"\(")):
        generate(opened("gpt2"), ["abcdefg"], **{"n_tokens": 3, **options})


def test_a_chat_template_is_applied_once() -> None:
    model = opened("llama")
    model.tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}{{ m['content'] }}.{% endfor %}"
        "{% if add_generation_prompt %}A{% endif %}"
    )
    (chain,) = generate(model, ["abc"], 2, chat=True)
    assert chain.prompt.split() == ["<s>", "a", "b", "c", ".", "A"]
    batch = model.prompts(["abc"])
    with pytest.raises(BadInput, match="texts"):
        generate(model, batch, 2, chat=True)
    assert generate(model, batch, 2)[0].mass is not None
