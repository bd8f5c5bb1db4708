import io

from PIL import Image

from grounding_rewards.report.page import PageAnswer, PageFilm
from grounding_rewards.report.picture import draw_films


def film(boxes):
    answer = PageAnswer(boxes=[[10, 10, 60, 60]], labels=["mass"], ious=[0.5], reward=0.5, reason="", text="")
    return PageFilm(
        name="a film",
        load_image=lambda: Image.new("L", (112, 112), 40),
        width=112,
        height=112,
        boxes=boxes,
        labels=["mass"] * len(boxes),
        before=answer,
        after=answer,
    )


def test_the_first_films_are_drawn_with_their_boxes_in_colour():
    picture = Image.open(io.BytesIO(draw_films([film([[20, 20, 70, 70]]), film([]), film([])], count=2)))
    colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 20)}
    assert picture.format == "PNG"
    # orange before, blue after
    assert {(0xFF, 0x9D, 0x45), (0x4D, 0xB5, 0xFF)} <= colours
