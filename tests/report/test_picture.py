import io

import pytest
from PIL import Image

from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.report.diff_page import ImagePair
from grounding_rewards.report.picture import draw_images

NAMES = ("before", "$after")


def pair(boxes):
    image = AnsweredImage(
        "an image",
        112,
        112,
        gt=boxes,
        gt_labels=["mass"] * len(boxes),
        pred=[[10, 10, 60, 60], [0, 0, float("nan"), 9]],
        rewards={"R4": 0.5},
    )
    return ImagePair(image, image)


@pytest.mark.parametrize("image", [Image.new("L", (112, 112), 40), None])
def test_the_first_images_are_drawn_with_their_boxes_in_colour(image):
    pairs = [pair([[20, 20, 70, 70]]), pair([]), pair([])]
    picture = Image.open(io.BytesIO(draw_images(pairs, NAMES, "R4", lambda annotated: image, count=2)))
    colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 20)}
    assert picture.format == "PNG"
    # orange for A, blue for B
    assert {(0xFF, 0x9D, 0x45), (0x4D, 0xB5, 0xFF)} <= colours
