"""Writes the images of a source as a folder of parquet shards with prompts, images, boxes and a card.

`pipeline` runs the steps: a source's annotated images are checked together and made examples of (`examples`), copies
found (`split_duplicates`), files stored and all written (`shards`, `manifest`). `settings` holds what the
output depends on. `mix` joins such folders, `load` opens a dataset by its name.
"""

from grounding_rewards.prepare.manifest import read_manifest, split_shards, verify_images
from grounding_rewards.prepare.pipeline import prepare_images
from grounding_rewards.prepare.settings import PrepareSettings

__all__ = ["PrepareSettings", "prepare_images", "read_manifest", "split_shards", "verify_images"]
