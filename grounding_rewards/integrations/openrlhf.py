"""OpenRLHF: `--reward.remote_url FILE.py`, where the file may be this one.

By `openrlhf/utils/agent.py` of OpenRLHF 0.11.2, read in 2026-11: a query is the prompt, with more tokens for images,
and the answer, with special tokens. It catches errors and goes on, so that `samples` prints them.
"""

from collections.abc import Sequence
from typing import Any

from grounding_rewards.integrations.samples import image_columns, reward_of, scored
from grounding_rewards.parsing.answer_span import opens_thinking

# Fewest characters by which the end of a prompt is recognised; a shorter one may occur anywhere.
_LEAST_END = 8


def reward_func(
    queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], reward: str = "R4", **parameters: Any
) -> dict[str, Any]:
    """The rewards of a batch, as tensors.

    Args:
        queries: prompts with answers.
        prompts: the prompts without answers.
        labels: of ``--data.label_key``: JSON strings with ``boxes``, ``width``, ``height``, ``box_format`` …
        reward: as for :func:`grounding_rewards.get_reward`.
        **parameters: of the reward.

    Returns:
        ``rewards`` and ``scores``, (n,) in [0, 1], and `samples.COMPONENTS` as ``extra_logs``.

    Raises:
        ValueError: an unknown reward or parameter, or a label that cannot be used.
    """
    import torch

    grounding_reward = reward_of(reward, **parameters)
    columns = image_columns(labels, [{"prompt_opens_thinking": opens_thinking(prompt)} for prompt in prompts])
    answers = [answer_in(query, prompt) for query, prompt in zip(queries, prompts, strict=True)]
    rewards, components = scored(grounding_reward, answers, columns)
    logs = {name: torch.tensor(values) for name, values in components.items()}
    return {"rewards": torch.tensor(rewards), "scores": torch.tensor(rewards), "extra_logs": logs}


def answer_in(query: str, prompt: str) -> str:
    """The part of a query after the prompt, or after the longest end of the prompt in it; the whole without either.

    Example:
        >>> answer_in("<image><image>Where?<|im_start|>assistant\\n[]", "<image>Where?<|im_start|>assistant\\n")
        '[]'
    """
    # The beginning of the prompt differs in the query, which has more tokens for images: look for the longest end that
    # is in it. By bisection, since a query that has one end has all shorter ones: an end of `length` characters is in
    # it, one of `missing_length` is not.
    length, missing_length = 0, len(prompt) + 1
    while missing_length - length > 1:
        middle = (length + missing_length) // 2
        if prompt[len(prompt) - middle :] in query:
            length = middle
        else:
            missing_length = middle
    # So few characters may occur anywhere, unless they are the whole prompt.
    if length < min(len(prompt), _LEAST_END):
        return query
    end = prompt[len(prompt) - length :]
    return query[query.index(end) + length :]
