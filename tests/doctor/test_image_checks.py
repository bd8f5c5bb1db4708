"""What the doctor sees only in pixels: broken and empty images, and copies; and what --quick leaves out."""

import csv
import json
from collections.abc import Callable

import numpy as np
import pytest

from grounding_rewards.cli import main
from grounding_rewards.doctor import image_checks
from grounding_rewards.doctor.altered_copies import find_altered_copies, middle_of
from grounding_rewards.doctor.examine import examine
from grounding_rewards.doctor.image_checks import find_odd, is_tilted
from grounding_rewards.doctor.raw_rows import ImageFacts, ImageRow, RowSource, open_rows
from grounding_rewards.synthetic import draw_radiograph, image_indices

pytest.importorskip("datasets", reason="needs the train extra")

from PIL import Image, ImageDraw, ImageOps

PIXEL_CHECKS = {
    *("broken-image", "one-grey", "image-copy", "copy-leak"),
    *("drawn-boxes", "inverted-image", "turned-image", "odd-image", "colour-image", "grey-shift", "clipped-image"),
    *("odd-quality", "blank-box", "mirrored-image"),
}


def image(seed, size=(120, 160)):
    greys = np.random.default_rng(seed).integers(0, 256, (9, 7), dtype=np.uint8)
    return Image.fromarray(greys).resize(size, Image.Resampling.BICUBIC)


@pytest.fixture
def folder(tmp_path):
    """Twelve sound images, each another one."""
    rows = []
    for k in range(12):
        name = f"{k}.jpg" if k % 2 else f"{k}.png"
        image(k).save(tmp_path / name)
        row = {"file": name, "width": 120, "height": 160, "boxes": [[9, 9, 40, 50 + k]] if k % 3 else []}
        rows.append(
            {**row, "labels": ["mass"] * len(row["boxes"]), "split": "train" if k < 9 else "test", "id": f"f{k}"}
        )
    (tmp_path / "annotations.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def defects(folder, **options):
    checkup = examine(open_rows(str(folder)), **options)
    found = {one.name: one for one in checkup.defects if one.name in PIXEL_CHECKS}
    return {name: (one.severity, one.count, [example.id for example in one.examples]) for name, one in found.items()}


def test_sound_images_have_none(folder):
    assert defects(folder) == {}


@pytest.mark.parametrize("name", ["1.jpg", "2.png"])
def test_a_file_that_breaks_off_is_an_error_though_its_header_is_sound(folder, name):
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: len(data) * 2 // 3])
    assert defects(folder) == {"broken-image": ("error", 1, [f"f{name[0]}"])}
    (defect,) = [one for one in examine(open_rows(str(folder))).defects if one.name == "broken-image"]
    assert name in defect.examples[0].detail


def test_empty_images_and_such_that_broke_off_before_they_were_saved(folder):
    Image.new("L", (120, 160), 255).save(folder / "6.png")
    cut = np.asarray(image(4)).copy()
    cut[96:] = 128
    Image.fromarray(cut).save(folder / "4.png")
    assert defects(folder) == {"broken-image": ("error", 1, ["f4"]), "one-grey": ("warning", 1, ["f6"])}


def test_an_image_that_is_nearly_black_shows_nothing(folder):
    image(4).point(lambda grey: grey // 64).save(folder / "4.png")
    assert defects(folder) == {"one-grey": ("warning", 1, ["f4"])}
    (defect,) = [one for one in examine(open_rows(str(folder))).defects if one.name == "one-grey"]
    assert defect.examples[0].detail == "every pixel is 0 to 3, but for one in a hundred, of 255"


def test_a_few_images_in_colour(folder):
    few = {"colour-image": ("warning", 2, ["f4", "f6"])}
    for name in ("4.png", "6.png"):
        Image.merge("RGB", (image(4), image(5), image(6))).save(folder / name)
    assert defects(folder) == few
    for k in range(8, 12):
        Image.merge("RGB", (image(k), image(k + 9), image(k + 20))).save(folder / f"{k}.{'jpg' if k % 2 else 'png'}")
    assert defects(folder) == few | {"colour-image": ("warning", 6, ["f4", "f6", "f8"])}


def test_copies_are_a_note_within_a_split_and_an_error_between_splits(folder):
    image(2).save(folder / "5.jpg", quality=80)  # encoded again, train and train
    image(3, (90, 120)).save(folder / "10.png")  # smaller, train and test
    image(0).save(folder / "11.jpg", quality=70)
    assert defects(folder) == {"image-copy": ("note", 1, ["f5"]), "copy-leak": ("error", 2, ["f11", "f10"])}


def test_a_mirrored_copy_in_another_split_is_a_leak(folder):
    for place, name in ((2, "5.jpg"), (3, "10.png")):  # train and train: one more to learn from
        image(place).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(folder / name)
    assert defects(folder) == {"copy-leak": ("error", 1, ["f10"])}
    (leak,) = [one for one in examine(open_rows(str(folder))).defects if one.name == "copy-leak"]
    assert leak.examples[0].detail == "a mirrored copy of row 3 of train (id f3)"


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("an altered", lambda one: one.crop((4, 3, 207, 251)).resize((211, 256)).point(lambda grey: 20 + grey * 0.8)),
        ("an altered", lambda one: one.rotate(4, Image.Resampling.BICUBIC)),
        ("an altered", lambda one: one.point(lambda grey: 255 * (grey / 255) ** 2)),
        ("an inverted", lambda one: one.point(lambda grey: 255 - grey)),
        ("a mirrored and inverted", lambda one: ImageOps.mirror(one).point(lambda grey: 255 - grey)),
    ],
)
def test_an_altered_copy_in_another_split_is_a_leak(folder, what, change):
    from grounding_rewards.synthetic import draw_radiograph

    drawn = [draw_radiograph(k, "pa-256").image.convert("L") for k in range(12)]
    split = ["train"] * 9 + ["test"] * 3
    rows = [{"file": f"{k}.png", "boxes": [], "labels": [], "id": f"f{k}", "split": split[k]} for k in range(12)]
    (folder / "annotations.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for k, one in enumerate(drawn):
        one.save(folder / f"{k}.png")
    change(drawn[2]).save(folder / "4.png")  # train and train
    assert "copy-leak" not in defects(folder)
    change(drawn[3]).save(folder / "10.png")
    assert defects(folder)["copy-leak"] == ("error", 1, ["f10"])
    (leak,) = [one for one in examine(open_rows(str(folder))).defects if one.name == "copy-leak"]
    assert leak.examples[0].detail == f"{what} copy of row 3 of train (id f3)"


def test_images_that_are_alike_in_all_but_details_are_no_copies():
    rng = np.random.default_rng(0)
    common = np.kron(rng.uniform(40, 200, (8, 8)), np.ones((16, 16)))
    images = [Image.fromarray(np.uint8(common + rng.uniform(-25, 25, common.shape))) for _ in range(40)]
    small = [one.resize((32, 32), Image.Resampling.BOX).tobytes() for one in images]
    assert list(find_altered_copies(small, [middle_of(one) for one in images], ["train", "test"] * 20)) == []


@pytest.mark.parametrize("colour", [(255, 0, 0), (0, 255, 0), (255, 255, 255)])
@pytest.mark.parametrize("name", ["1.jpg", "4.png"])
def test_a_box_that_is_drawn_into_the_image_is_an_error(folder, colour, name):
    box = json.loads((folder / "annotations.jsonl").read_text().splitlines()[int(name[0])])["boxes"][0]
    drawn = image(int(name[0])).convert("L").point(lambda grey: grey // 2).convert("RGB")
    ImageDraw.Draw(drawn).rectangle(box, outline=colour, width=2)
    drawn.save(folder / name)
    assert defects(folder) == {"drawn-boxes": ("error", 1, [f"f{name[0]}"])}


@pytest.mark.parametrize(("grey", "found"), [(0, True), (128, True), (255, True), (None, False)])
def test_a_box_that_was_painted_over(folder, grey, found):
    for name in ("1.jpg", "4.png"):
        x1, y1, x2, y2 = json.loads((folder / "annotations.jsonl").read_text().splitlines()[int(name[0])])["boxes"][0]
        painted = np.asarray(image(int(name[0]))).copy()
        noise = np.random.default_rng(0).integers(0, 12, painted.shape, dtype=np.uint8)
        painted[y1:y2, x1:x2] = noise[y1:y2, x1:x2] if grey is None else grey
        Image.fromarray(painted).save(folder / name)
    assert defects(folder) == ({"blank-box": ("warning", 2, ["f1", "f4"])} if found else {})


def test_a_stack_of_pages_is_no_image(folder):
    image(4).save(folder / "4.png", format="TIFF", save_all=True, append_images=[image(20)])
    assert defects(folder) == {"broken-image": ("error", 1, ["f4"])}


def alike(folder, change, count=30):
    """Images of one kind, `change` by their number, in two splits; written in place of the twelve."""
    common = np.asarray(image(0, (48, 64)), dtype=float)
    rows = []
    for k in range(count):
        greys = np.clip(0.5 * common + 0.3 * np.asarray(image(100 + k, (48, 64)), dtype=float) + k % 7, 0, 255)
        Image.fromarray(np.uint8(change(k, greys))).save(folder / f"{k}.png")
        row = {"file": f"{k}.png", "width": 48, "height": 64, "boxes": [], "labels": [], "id": f"f{k}"}
        rows.append(json.dumps({**row, "split": "train" if k < 18 else "test"}))
    (folder / "annotations.jsonl").write_text("\n".join(rows))
    return defects(folder)


def test_greys_unlike_those_of_the_other_images(folder):
    assert alike(folder, lambda k, greys: greys) == {}
    few = alike(folder, lambda k, greys: 255 - greys if k in (4, 22) else greys)
    assert few == {"inverted-image": ("warning", 2, ["f4", "f22"])}
    turned = alike(folder, lambda k, greys: greys[::-1, ::-1] if k == 4 else greys)
    assert turned == {"turned-image": ("warning", 1, ["f4"])}
    darker = alike(folder, lambda k, greys: 0.6 * greys if k >= 18 else greys)
    gamma = alike(folder, lambda k, greys: 255 * (greys / 255) ** 0.5 if k >= 18 else greys)
    assert darker == gamma == {"grey-shift": ("warning", 12, [])}
    waves = 127 + 90 * np.sin(np.arange(64)[:, None] / 2) * np.cos(np.arange(48) / 2)
    other = alike(folder, lambda k, greys: np.roll(waves, k) if k in (4, 9, 22) else greys)
    assert other == {"odd-image": ("warning", 3, ["f4", "f9", "f22"])}
    # Where some are half like the others, nobody can say where something else begins.
    mixed = {4: 0.0, 9: 0.0, 22: 0.0, 12: 0.25}
    some = alike(folder, lambda k, greys: np.roll(waves, k) + mixed[k] * (greys - 128) if k in mixed else greys)
    assert some == {}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda greys: greys.repeat(8, 0).repeat(8, 1)[::8, ::8] // 1, ""),
        (lambda greys: greys[::8, ::8].repeat(8, 0).repeat(8, 1), "test: the logarithm of the fineness is -2"),
        (
            lambda greys: greys.argsort(axis=None).argsort().reshape(greys.shape) / 12.1,
            "test: the contrast is 7",
        ),
        (lambda greys: np.pad(greys[6:-6, 6:-6], 6), "test: the "),
    ],
)
def test_a_split_that_was_converted_otherwise(folder, change, words):
    found = alike(folder, lambda k, greys: change(greys) if k >= 18 else greys)
    assert found.keys() == ({"grey-shift"} if words else set())
    assert (
        not words
        or words in next(one for one in examine(open_rows(str(folder))).defects if one.name == "grey-shift").found
    )


@pytest.mark.parametrize(("step", "count"), [(5, 6), (3, 10), (9, 0)])
@pytest.mark.parametrize("fill", [0, 255])
def test_images_that_were_turned_by_some_degrees(folder, step, count, fill):
    """Where they are but a few, they may have been digitised so."""

    def turned(k, greys):
        tilt = 11 if k % 2 else -14
        return np.asarray(Image.fromarray(np.uint8(greys)).rotate(tilt, fillcolor=fill)) if k % step == 0 else greys

    found = alike(folder, turned)
    assert found == ({"turned-image": ("warning", count, [f"f{k * step}" for k in range(3)])} if count else {})


def test_dark_places_beside_the_shoulders_are_no_turned_image():
    assert not is_tilted(np.asarray(draw_radiograph(image_indices("train", 20)[19], "pa-256").image.convert("L")))


def noisy(greys, deviation):
    return np.clip(greys + np.random.default_rng(5).normal(0, deviation, greys.shape), 0, 255)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda greys: noisy(greys, 20), "noisy"),
        (lambda greys: greys // 16 * 17, "of few greys"),
        (lambda greys: np.where(np.arange(64)[:, None] % 4, greys, np.roll(greys, 9, axis=1)), "striped"),
        (lambda greys: 100 + greys / 5, "flat"),
        (lambda greys: np.where(greys < np.median(greys), 0, greys), "cut off"),
        (lambda greys: greys[::6, ::6], "tiny"),
        (lambda greys: greys * 0.9 + 5, ""),
        (lambda greys: noisy(greys, 2), ""),
    ],
)
def test_a_few_images_of_another_quality(folder, change, words):
    """Of sixty images that two scanners made, one with a little more noise."""

    def made(k, greys):
        greys = noisy(greys, 3 + k % 2)
        return change(greys) if k in (4, 9, 22, 47) else greys

    assert alike(folder, made, count=60).get("odd-quality") == (("warning", 4, ["f4", "f9", "f22"]) if words else None)
    if words:
        (defect,) = [one for one in examine(open_rows(str(folder))).defects if one.name == "odd-quality"]
        assert all(one.detail.startswith(words) for one in defect.rows)


def test_cut_outs_of_every_size_are_not_called_turned():
    rng = np.random.default_rng(1)
    y, x = np.mgrid[:128, :128] / 128
    images = []
    for _ in range(120):
        whole = rng.normal(0, 0.1, (128, 128)) - sum(
            np.exp(-(((x - middle) / 0.15) ** 2) - ((y - 0.45) / 0.3) ** 2) for middle in rng.normal((0.3, 0.7), 0.03)
        )
        side = 16 * rng.integers(3, 9)
        left, top = rng.integers(0, 129 - side, 2)
        cut = whole[top : top + side, left : left + side]
        images.append(cut.reshape(16, side // 16, 16, side // 16).mean(axis=(1, 3)).ravel())
    assert find_odd(np.array(images)) == ([], [], [])


def test_greys_that_were_cut_off(folder):
    found = alike(folder, lambda k, greys: np.minimum(4 * greys, 255) if k == 3 else greys)
    assert found["clipped-image"] == ("warning", 1, ["f3"])


def plain(kind: str, change: Callable[[np.ndarray], np.ndarray] = lambda greys: greys) -> list[ImageRow]:
    """Fifty images, every other one with a box and of a kind of file, and the others changed."""
    rng, rows = np.random.default_rng(0), []
    for k in range(50):
        greys = rng.uniform(80, 160) + rng.normal(0, 20, 1024)
        small = (greys if k % 2 else change(greys)).clip(0, 255).astype(np.uint8).tobytes()
        columns = {"file": f"{k}.{kind if k % 2 else 'png'}", "labels": ["mass"][: k % 2], "boxes": []}
        columns |= {"boxes": [[10 + k, 10, 60 + k, 40 + k]][: k % 2], "width": 200, "height": 200}
        rows.append(ImageRow("train", k, columns, facts=ImageFacts((200, 200), greys=(0, 255), small=small)))
    return rows


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (plain("png"), ""),
        (plain("jpg"), "kind of file"),
        (plain("png", lambda greys: greys / 2.5), "mean grey"),
        (plain("png", lambda greys: np.where(np.arange(1024) % 512 < 2, 255, greys)), "grey at "),
    ],
)
def test_images_without_boxes_that_are_told_apart_at_a_glance(rows, words):
    found = {one.name: one for one in examine(RowSource("images", lambda: iter(rows), len(rows))).defects}
    assert ("shortcut" in found) == bool(words)
    assert not words or words in found["shortcut"].found


def test_names_that_may_be_in_the_pixels_of_a_dicom_file_are_said(tmp_path):
    pydicom = pytest.importorskip("pydicom", reason="needs the dicom extra")
    from grounding_rewards.synthetic import draw_radiograph
    from tests.conftest import write_dicom

    rows = []
    for k, said in enumerate(("YES", "NO", None)):
        path = write_dicom(draw_radiograph(k, "pa-256"), tmp_path)
        if said is not None:
            file = pydicom.dcmread(path)
            file.BurnedInAnnotation = said
            file.save_as(path)
        rows.append(json.dumps({"file": path.name, "boxes": [], "labels": [], "id": f"f{k}"}))
    (tmp_path / "annotations.jsonl").write_text("\n".join(rows))
    for quick in (True, False):
        (defect,) = [one for one in examine(open_rows(str(tmp_path)), quick=quick).defects if one.name == "burned-in"]
        assert (defect.severity, defect.count, defect.examples[0].id) == ("warning", 1, "f0")


def test_all_rows_of_every_defect_are_listed(folder):
    lines = [json.loads(line) for line in (folder / "annotations.jsonl").read_text().splitlines()]
    for line in lines:
        line["boxes"], line["labels"] = line["boxes"] * 2, line["labels"] * 2
    (folder / "annotations.jsonl").write_text("\n".join(map(json.dumps, lines)))
    out = folder / "bad.csv"
    for options, ids in (((), ["f1", "f2", "f4", "f5", "f7", "f8", "f10", "f11"]), (("--no-images",), None)):
        assert main(["doctor", str(folder), "--quick", "--rows", str(out), *options]) == 0
        with out.open(newline="") as file:
            listed = list(csv.DictReader(file))
        assert list(listed[0]) == ["check", "split", "row", "id", "detail"]
        twice = [row for row in listed if row["check"] == "duplicate-boxes"]
        assert [(row["split"], row["row"]) for row in twice][-2:] == [("test", "1"), ("test", "2")]
        assert [row["id"] for row in twice] == (ids or [f"image {k + 1}" for k in (1, 2, 4, 5, 7, 8, 10, 11)])
        assert twice[0]["detail"] == "boxes 0 and 1 are [9, 9, 40, 51]"


def test_images_of_the_same_bytes_are_named_once(folder):
    (folder / "10.png").write_bytes((folder / "2.png").read_bytes())
    checkup = examine(open_rows(str(folder)))
    assert {"image-leak", *PIXEL_CHECKS} & {one.name for one in checkup.defects} == {"image-leak"}


def test_quick_says_what_it_leaves_out(folder):
    for name in ("1.jpg", "2.png"):
        (folder / name).write_bytes((folder / name).read_bytes()[:-400])
    checkup = examine(open_rows(str(folder)), quick=True)
    assert not PIXEL_CHECKS & {one.name for one in checkup.defects}
    assert set(checkup.unchecked) >= PIXEL_CHECKS
    assert all("--quick" in checkup.unchecked[name] for name in PIXEL_CHECKS)


def test_processes_change_nothing(folder, monkeypatch):
    (folder / "1.jpg").write_bytes((folder / "1.jpg").read_bytes()[:-400])
    image(0).save(folder / "11.jpg", quality=70)
    alone = examine(open_rows(str(folder))).to_dict()
    monkeypatch.setattr(image_checks, "_FEW", 0)
    assert examine(open_rows(str(folder)), processes=2).to_dict() == alone


def test_the_command_takes_both_options(folder, capsys):
    (folder / "1.jpg").write_bytes((folder / "1.jpg").read_bytes()[:-400])
    assert main(["doctor", str(folder), "--processes", "1"]) == 1
    assert "broken-image" in capsys.readouterr().out
    assert main(["doctor", str(folder), "--quick"]) == 0
    assert "reads the headers of images" in " ".join(capsys.readouterr().out.split())


def test_patients_are_known_by_the_names_of_files(folder):
    lines = [json.loads(line) for line in (folder / "annotations.jsonl").read_text().splitlines()]
    for k, line in enumerate(lines):
        name = f"patient{3 if k == 10 else k:05d}_study{k}.png"
        (folder / line["file"]).rename(folder / name)
        line["file"] = name
    (folder / "annotations.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (leak,) = [one for one in examine(open_rows(str(folder))).defects if "leak" in one.name]
    assert (leak.name, leak.count, leak.of) == ("patient-name-leak", 1, 11)
    assert leak.examples[0].detail == (
        "patient00003_study10.png is by its name of patient 3, who is also in train, as patient00003_study3.png"
    )


def test_a_header_that_cannot_be_read_says_why(folder):
    (folder / "1.jpg").write_bytes(b"no image")
    Image.new("1", (20000, 20000)).save(folder / "2.png")
    (defect,) = [one for one in examine(open_rows(str(folder)), quick=True).defects if one.name == "missing-image"]
    one, other = (example.detail for example in defect.examples)
    assert "a file that no decoder knows" in one
    assert "exceeds limit" in other


@pytest.mark.parametrize(("images", "drawn"), [(19, False), (20, True)])
def test_a_dataset_that_holds_nothing_out_is_drawn_and_it_is_said(tmp_path, images, drawn):
    row = {"file": "a.png", "width": 120, "height": 160, "boxes": [[9, 9, 40, 50]], "labels": ["mass"]}
    rows = [{**row, "id": f"{k}", "patient_id": f"p{k}"} for k in range(images)]
    (tmp_path / "annotations.jsonl").write_text("\n".join(map(json.dumps, rows)))
    said = " ".join(examine(open_rows(str(tmp_path)), quick=True).assumptions)
    assert ("holds no image out: 80 % of its patients are drawn for train" in said) == drawn
