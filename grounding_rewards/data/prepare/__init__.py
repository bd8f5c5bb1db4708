"""Writes the films of a reader as a folder of parquet shards with prompts, images, boxes and a card.

`pipeline` runs the steps in this order: `survey` (with `splits`, `tasks` and `spacing`), `copied_films`,
`planned_films`, `film_images`, `rows`, `shards`, `manifest` (with `card`). `settings` holds what the output depends on.
`film_parts` is what the shares of several machines leave of it; `mix` joins such folders, `hub` uploads one.
"""

from __future__ import annotations

from grounding_rewards.data.prepare.manifest import read_manifest, split_files, verify_films
from grounding_rewards.data.prepare.pipeline import prepare_films, prepare_share
from grounding_rewards.data.prepare.settings import PrepareSettings

__all__ = [
    "PrepareSettings",
    "prepare_films",
    "prepare_share",
    "read_manifest",
    "split_files",
    "verify_films",
]
