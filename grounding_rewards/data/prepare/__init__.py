"""Records of films to a folder that trains and streams: splits, prompts, images, parquet shards and a card.

`prepare_films` does it. Rooms, in the order of the work: `settings`;
`survey`, the first look at the tables, with `splits` and `tasks`; `film_images`; `shards`; `manifest` and `card`.
"""

from __future__ import annotations

from grounding_rewards.data.prepare.manifest import read_manifest, split_files, verify_films
from grounding_rewards.data.prepare.pipeline import prepare_films
from grounding_rewards.data.prepare.settings import PrepareSettings

__all__ = [
    "PrepareSettings",
    "prepare_films",
    "read_manifest",
    "split_files",
    "verify_films",
]
