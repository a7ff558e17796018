import pytest
import torch

from circuits.models import open as pretrained
from circuits.models.contract import check_model
from tests.stories import stories


@pytest.mark.pretrained
@torch.no_grad()
def test_the_little_girl_is_named_lily():
    model = pretrained.wrap(*stories(), name="stories260K")
    check_model(model)
    prompts = model.prompts(
        [
            f"Once upon a time, there was a little {who} named"
            for who in ("girl", "boy")
        ],
        ["Lily", "Timmy"],
    )
    last = model(prompts.tokens, prompts.mask)[:, -1].softmax(-1)
    probabilities = last.gather(1, prompts.targets[:, None]).squeeze(1)
    # Measured once with another reader of the same file.
    torch.testing.assert_close(
        probabilities, torch.tensor([0.926, 0.631]), atol=1e-3, rtol=0
    )
