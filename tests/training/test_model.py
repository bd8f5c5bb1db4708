"""Options that only what is built of them can judge are refused before any weights are loaded."""

from __future__ import annotations

import pytest
import torch
from trl import GRPOConfig

from grounding_rewards.training.model import check_optimization

pytestmark = pytest.mark.training


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": -1.0}, "learning_rate -1 .* Invalid learning rate"),
        ({"adam_beta1": 1.5}, "Invalid beta parameter"),
        ({"lr_scheduler_type": "cosine", "lr_scheduler_kwargs": {"num_cycle": 2}}, "keyword argument 'num_cycle'"),
        ({"lr_scheduler_type": "cosine_with_min_lr"}, "min_lr"),
        ({"generation_kwargs": {"num_beam": 2}}, "got num_beam. Did you mean num_beams"),
    ],
)
def test_what_cannot_be_built_is_refused(tmp_path, options, message):
    empty = torch.nn.Linear(2, 2, device="meta")
    check_optimization(GRPOConfig(str(tmp_path), use_cpu=True, bf16=False), empty)
    with pytest.raises(ValueError, match=message):
        check_optimization(GRPOConfig(str(tmp_path), use_cpu=True, bf16=False, **options), empty)
