"""Copies of films: found through re-encoding, and no real film taken for the copy of another one."""

import io

import numpy as np
import pytest

from grounding_rewards.data.copies import THRESHOLD, film_signature, find_copies

pytest.importorskip("datasets", reason="needs the train extra")

from PIL import Image

from grounding_rewards.data.images import open_film
from grounding_rewards.data.load import load_split


@pytest.fixture(scope="module")
def real_films(shared_dir):
    return [open_film(path) for path in sorted((shared_dir / "data" / "cxr_lungs" / "images").glob("*.jpg"))]


def drawn_films(name):
    films = load_split(name, "train", films=150)
    return [films[k]["image"] for k in range(films.num_rows)]


def encoded(film, kind, **options):
    buffer = io.BytesIO()
    film.save(buffer, kind, **options)
    return Image.open(buffer)


def copies_of(film):
    greys = np.asarray(film.convert("L"), dtype=float)
    yield encoded(film, "PNG")
    yield encoded(film, "JPEG", quality=95)
    yield encoded(film, "JPEG", quality=60)
    yield encoded(film, "WEBP", quality=80)
    yield encoded(film.resize((film.width // 2, film.height // 2), Image.Resampling.BICUBIC), "JPEG", quality=90)
    yield film.resize((512, 512), Image.Resampling.BICUBIC)
    yield Image.fromarray(np.uint8((greys - greys.min()) / np.ptp(greys) * 255))


def cosines(films):
    raw = np.stack([np.frombuffer(film_signature(film), np.int8) for film in films]).astype(float)
    raw /= np.linalg.norm(raw, axis=1, keepdims=True)
    return raw @ raw.T


def test_no_chest_film_is_called_a_copy_of_another_one(real_films):
    assert len(real_films) > 300
    assert list(find_copies([film_signature(film) for film in real_films])) == []
    # the two that are most alike are far from the threshold
    assert np.triu(cosines(real_films), k=1).max() < 0.85 < THRESHOLD - 0.1


@pytest.mark.parametrize("name", ["synthetic", "synthetic:pa-256"])
def test_no_drawn_film_is_called_a_copy_of_another_one(name):
    assert list(find_copies([film_signature(film) for film in drawn_films(name)])) == []


def test_copies_of_real_films_are_found_among_all_others(real_films):
    signatures = [film_signature(film) for film in real_films]
    for place in range(0, len(real_films), 20):
        copies = [film_signature(copy) for copy in copies_of(real_films[place])]
        found = [pair for pair in find_copies([*signatures, *copies]) if pair[1] >= len(signatures)]
        assert {pair for pair in found if pair[0] < len(signatures)} == {
            (place, len(signatures) + k) for k in range(len(copies))
        }


def test_blocks_do_not_change_what_is_found(monkeypatch):
    films = drawn_films("synthetic")[:12]
    signatures = [
        film_signature(film) for film in [*films, films[3], Image.new("L", (9, 9)), films[7].resize((99, 99))]
    ]
    found = sorted(find_copies(signatures))
    assert found == [(3, 12), (7, 14)]
    monkeypatch.setattr("grounding_rewards.data.copies._BLOCK", 4)
    assert sorted(find_copies(signatures)) == found


@pytest.mark.parametrize("signatures", [[], [None], [None, None]])
def test_nothing_to_compare(signatures):
    assert list(find_copies(signatures)) == []
