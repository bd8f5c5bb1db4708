"""NeMo-RL: an environment, named by `register` and a block `env:` of its configuration.

By `nemo_rl/environments` of NVIDIA-NeMo/RL at 2530250, read in 2026-11: a message log holds every turn; its
own environments join all that the assistant said, while here the last turn is the answer.
"""

import functools
from typing import Any

from grounding_rewards.integrations.samples import image_columns, offering, reward_of, scored

_CLASS = f"{__name__}.GroundingEnvironment"


def register(name: str = "grounding") -> None:
    """Register the environment with NeMo-RL under a name, under which ``env.<name>`` has its settings.

    It has to be called before the training is set up.
    """
    from nemo_rl.distributed.ray_actor_environment_registry import ACTOR_ENVIRONMENT_REGISTRY
    from nemo_rl.distributed.virtual_cluster import PY_EXECUTABLES
    from nemo_rl.environments.utils import register_env

    # The Python in which Ray starts it: that of the training, which has this package.
    ACTOR_ENVIRONMENT_REGISTRY[_CLASS] = PY_EXECUTABLES.SYSTEM
    register_env(name, _CLASS)


@functools.cache
def _environment() -> Any:
    """Make the class of the environment, as an actor of Ray."""
    import ray
    import torch
    from nemo_rl.environments.interfaces import EnvironmentInterface, EnvironmentReturn

    class GroundingEnvironment(EnvironmentInterface):
        """Scores the last turn by ``metadata["ground_truth"]``, and ends the conversation."""

        def __init__(self, cfg: Any) -> None:
            self.reward = reward_of(cfg.get("reward", "R4"), **(cfg.get("reward_kwargs") or {}))

        def step(self, message_log_batch: Any, metadata: Any) -> Any:
            """Score a batch; the metadata of each sample then has its components under `grounding`."""
            columns = image_columns([row["ground_truth"] for row in metadata])
            samples = scored(self.reward, message_log_batch, columns).samples("reward")
            rewards = torch.tensor([sample["reward"] for sample in samples])
            observations = [{"role": "environment", "content": "Environment: done"} for _ in samples]
            updated_metadata = [{**row, "grounding": sample} for row, sample in zip(metadata, samples, strict=True)]
            # One turn is the whole conversation: no further turn has words to stop at, and every sample is at its end.
            no_stops, ends = [None] * len(samples), torch.ones_like(rewards)
            return EnvironmentReturn(observations, updated_metadata, no_stops, rewards, terminateds=ends, answers=None)

        def global_post_process_and_metrics(self, batch: Any) -> tuple[Any, dict[str, float]]:
            """The batch unchanged, and the mean reward for the log."""
            return batch, {f"{self.reward.__name__}/mean": batch["rewards"].float().mean().item()}

    return ray.remote(GroundingEnvironment)


__getattr__ = offering(__name__, "GroundingEnvironment", _environment)
