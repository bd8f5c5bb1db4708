"""Fixtures and strategies that several rooms share."""

import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# Nothing in the tests may look for a model or a dataset on the network.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Images are drawn for this run of the tests: none depends on what another run left.
_DRAWN_IMAGES = tempfile.TemporaryDirectory()
os.environ["HF_DATASETS_CACHE"] = _DRAWN_IMAGES.name
# Workers of pytest-xdist have a width of 80; tests that need one set it.
os.environ.pop("COLUMNS", None)
# Workers share the cores: a thread for each, also in what they start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A slow example is no failure, and CI tries the same examples every time: what it refuses can be seen again.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("default")

REPOSITORY = Path(__file__).resolve().parent.parent
#: Rooms and files whose properties (what Hypothesis tries) run with the core alone: there all examples are tried, and
#: nothing beside the core changes what they find. Under coverage they would take three times as long again.
PROPERTIES_OF_THE_CORE = ("tests/parsing", "tests/rewards", "tests/test_boxes.py", "tests/test_labels.py")
PROPERTIES_OF_THE_CORE += ("tests/test_matching.py", "tests/test_overlap.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(PROPERTIES_OF_THE_CORE) and hasattr(getattr(item, "obj", None), "hypothesis"):
            item.add_marker("untraced")


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Real images, annotations and completions, which stand beside the checkout and are not part of it."""
    path = REPOSITORY.parent / "shared"
    if not path.is_dir():
        pytest.skip("needs the real images and completions in ../shared, which only some checkouts have")
    return path


@pytest.fixture
def in_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory, from which paths in a YAML are found."""
    monkeypatch.chdir(REPOSITORY)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser, which playwright drives; while it is open, no test can start an event loop of asyncio."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, which is in the dev extra")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("needs Chromium, as in `apt-get install chromium`")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def tiny_model() -> tuple[Any, Any]:
    """An untrained Qwen2.5-VL of a million parameters, and its processor."""
    import torch

    from grounding_rewards.synthetic import LABELS
    from scripts.build_tiny_vlm import build_model, build_processor, build_tokenizer

    torch.set_num_threads(1)
    tokenizer = build_tokenizer((LABELS,))
    return build_model(tokenizer), build_processor(tokenizer)


@pytest.fixture(scope="session")
def tiny_vlm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with an untrained Qwen2.5-VL of a million parameters, and its processor, which knows all labels."""
    import torch

    from scripts.build_tiny_vlm import save_untrained

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("tiny_vlm")
    save_untrained(folder)
    return folder


@pytest.fixture(scope="session")
def checkpoint(tiny_model: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the untrained model and its processor, which no test changes."""
    folder = tmp_path_factory.mktemp("untrained")
    for part in tiny_model:
        part.save_pretrained(folder)
    return folder


@pytest.fixture
def images() -> Any:
    """Four images of 100 by 100 pixels of three patients: one finding, two findings, two normal ones."""
    from datasets import Dataset

    boxes = [[[0, 0, 50, 50]], [[0, 0, 20, 20], [50, 50, 100, 100]], [], []]
    columns = {"boxes": boxes, "labels": [["mass"], ["mass", "effusion"], [], []], "box_format": ["qwen3-vl"] * 4}
    names = {"patient_id": ["a", "a", "b", None], "id": ["one", "two", "three", "four"]}
    return Dataset.from_dict({**columns, **names, "width": [100] * 4, "height": [100] * 4})


def dicom_header(pixels: np.ndarray, bits: int = 12, **elements: Any) -> Any:
    """A grey DICOM image of stored values, `(rows, columns)` or `(frames, rows, columns)`, with these elements."""
    from pydicom.dataset import Dataset
    from pydicom.uid import DigitalXRayImageStorageForPresentation, generate_uid

    dataset = Dataset()
    dataset.SOPClassUID, dataset.SOPInstanceUID = DigitalXRayImageStorageForPresentation, generate_uid()
    dataset.StudyInstanceUID, dataset.SeriesInstanceUID = generate_uid(), generate_uid()
    dataset.Modality, dataset.SamplesPerPixel, dataset.PhotometricInterpretation = "DX", 1, "MONOCHROME2"
    dataset.Rows, dataset.Columns = pixels.shape[-2:]
    dataset.PixelRepresentation = int(pixels.dtype.kind == "i")
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 8 * pixels.itemsize, bits, bits - 1
    for keyword, value in elements.items():
        setattr(dataset, keyword, value)
    dataset.PixelData = pixels.tobytes()
    return dataset


def save_dicom(path: Path, dataset: Any, syntax: str | None = None) -> Path:
    """Write a DICOM file, in explicit little endian where no transfer syntax is given."""
    from pydicom.dataset import FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian

    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = syntax or ExplicitVRLittleEndian
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.save_as(path, enforce_file_format=True, implicit_vr=syntax == ImplicitVRLittleEndian, little_endian=True)
    return path


def write_dicom(image: Any, folder: Path) -> Path:
    """A drawn radiograph in a DICOM file of 12 bits, with a window that restores its greys."""
    window = {"WindowCenter": 255 * 8, "WindowWidth": 255 * 16, "VOILUTFunction": "LINEAR_EXACT"}
    pixels = np.asarray(image.image).astype("<u2") << 4
    dataset = dicom_header(pixels, PatientName="", PatientID="", PresentationLUTShape="IDENTITY", **window)
    return save_dicom(folder / f"{image.id}.dcm", dataset)


def write_image_folder(root: Path, rows: list[dict[str, Any]]) -> Path:
    """A folder of grey images, of the sizes that their rows state, and its annotations.jsonl."""
    from PIL import Image

    root.mkdir(parents=True, exist_ok=True)
    for k, row in enumerate(rows):
        Image.new("L", (row["width"], row["height"]), 40 * k % 256).save(root / row["file"])
    write_lines(root / "annotations.jsonl", rows)
    return root


def write_lines(path: str | Path, rows: Iterable[Any], *, ensure_ascii: bool = True) -> Path:
    """Write a file of JSON lines."""
    lines = [json.dumps(row, ensure_ascii=ensure_ascii) + "\n" for row in rows]
    Path(path).write_text("".join(lines), encoding="utf-8", newline="\n")
    return Path(path)


def read_lines(path: str | Path) -> list[Any]:
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def load_module(path: Path) -> ModuleType:
    """A module that no package holds, from its file, loaded anew."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def random_boxes(rng: np.random.Generator, n: int, size: float = 100.0) -> np.ndarray:
    """n valid boxes inside a square of the given size."""
    corners = rng.uniform(0, size, (n, 2, 2))
    low, high = corners.min(axis=1), corners.max(axis=1)
    return np.concatenate([low, high + 1e-6], axis=1)


def box_lists(max_size: int = 6) -> st.SearchStrategy[list[list[float]]]:
    """Lists of boxes on a coarse grid: overlapping, touching, equal, inverted and of no area."""
    corner = st.integers(0, 12).map(float)
    return st.lists(st.lists(corner, min_size=4, max_size=4), max_size=max_size)


def valid_box_lists(min_size: int = 0, max_size: int = 6) -> st.SearchStrategy[list[list[float]]]:
    """Lists of valid boxes on a coarse grid."""
    corner, side = st.integers(0, 10), st.integers(1, 8)
    box = st.tuples(corner, corner, side, side).map(lambda b: [*map(float, (b[0], b[1], b[0] + b[2], b[1] + b[3]))])
    return st.lists(box, min_size=min_size, max_size=max_size)
