import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_example_of_the_readme_shows_what_it_says(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(compile(example, str(README), "exec"), {})
    pattern, accuracy = capsys.readouterr().out.strip().splitlines()
    s1, a1, s2, a2, *_ = map(float, re.findall(r"\d\.\d+", pattern))
    assert abs(s1 - a1) < 0.01
    assert abs(s2 - a2) < 0.01
    assert abs(s1 - s2) > 0.1
    assert float(accuracy) == 0.0
