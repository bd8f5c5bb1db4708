"""Uploads, to a hub that is none: private, whole, and only what may be passed on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from grounding_rewards.prepare import PrepareSettings, prepare_images
from grounding_rewards.prepare.upload import push_private


class Hub:
    """What `huggingface_hub.HfApi` was asked."""

    def __init__(self, private=True):
        self.private, self.calls = private, []

    def create_repo(self, name, **options):
        self.calls.append(("create", name, options))

    def repo_info(self, name, **options):
        return SimpleNamespace(private=self.private)

    def upload_folder(self, **options):
        self.calls.append(("upload", options))


@pytest.fixture
def hub(monkeypatch):
    found = Hub()
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: found)
    return found


@pytest.fixture
def folder(make_images, tmp_path):
    def prepare(extra=None, **values):
        root, records = make_images(3)
        images = [record._replace(split="train", extra=extra or {}) for record in records]
        settings = PrepareSettings(**{"dataset": "jsonl", "box_format": "qwen3-vl", **values})
        prepare_images(images, root, tmp_path / "out", settings)
        return tmp_path / "out"

    return prepare


def test_only_private_and_only_the_dataset(folder, hub):
    push_private(folder(licence="CC BY 4.0"), "me/images")
    (_, name, made), (_, sent) = hub.calls
    assert (name, made["private"], made["repo_type"]) == ("me/images", True, "dataset")
    assert sent["allow_patterns"] == ["README.md", "manifest.json", "data/*.parquet"]


@pytest.mark.parametrize(
    "values",
    [
        {"dataset": "vindr-cxr"},
        {"dataset": "rsna-pneumonia"},
        # nobody said
        {},
        # a row's own
        {"licence": "CC BY 4.0", "extra": {"licence": "PhysioNet Credentialed Health Data License 1.5.0"}},
    ],
)
def test_what_may_not_be_passed_on(folder, hub, values):
    prepared = folder(**values)
    with pytest.raises(ValueError, match="Expected images that may be passed on"):
        push_private(prepared, "me/images")
    assert not hub.calls
    push_private(prepared, "me/images", licence_allows=True)
    assert len(hub.calls) == 2


def test_public_datasets_and_changed_folders_get_nothing(folder, hub):
    prepared, hub.private = folder(licence="CC BY 4.0"), False
    with pytest.raises(ValueError, match="Expected a private dataset on the hub, got 'me/images', which is public"):
        push_private(prepared, "me/images")
    (prepared / "README.md").write_text("mine")
    with pytest.raises(ValueError, match=r"README\.md was changed"):
        push_private(prepared, "me/images")
    assert [what for what, *_ in hub.calls] == ["create"]
