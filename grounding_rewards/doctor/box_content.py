"""Whether boxes fit what their images show, or would fit far better in another reading.

What lies in and around the boxes of one label has something in common that the same places of other images have not. A
box in the wrong place, or on the wrong image, shows no more of it than any image does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from grounding_rewards.boxes import Boxes, to_xyxy
from grounding_rewards.doctor.box_defects import JOIN, OTHER_ORDERS, SIDES, Diagnosis, OtherOrder

# Points of a side of what is compared, and by which part of its sides a box is enlarged for it.
_POINTS, _AROUND = 8, 0.35
# Images that a box is dealt to, and those among which the most alike are chosen.
_DEALT, _CHOICE = 16, 64
#: Fewer boxes are not compared.
FEWEST = 40
# Nor is a label with fewer.
_FEWEST_OF_LABEL = 8
# Another reading is better by so many standard errors and this factor; among images that look alike, by so many. Real
# and drawn sets lie at -3 and below for all readings, planted mistakes at 5 and above, and at 3 among images alike.
_BETTER, _FACTOR, _BETTER_ALIKE = 5.0, 1.05, 2.5
# In a group of boxes it is by so many: real and drawn sets lie at 0.2 and below.
_BETTER_IN_GROUP = 4.0
# Its boxes have more in common among themselves then, too: by 2.4 to 10 in planted groups, by -5 in sound ones.
_BETTER_AMONG = 1.0
# In another reading most boxes lose so many deviations, or what images show says nothing; no box says more than that.
_LEAST_LOST, _MOST_EVIDENCE = 0.5, 2.5
# Boxes fit the image of the next row by so many standard errors, and their own by at most so many.
_FITS, _MISSES = 4.5, 3.0
# Fewer boxes of a group are not compared, nor where the others do not clearly show what they have in common.
_FEWEST_OF_GROUP, _CLEAR = 30, 8.0
# Boxes that are moved by these parts of the image differ from what is around them by so many squared standard errors a
# box, so many times more than as they are, and than at the ends. Real sets lie at 0.25, drawn ones where they are.
_MOVES, _FEW_DEALT = np.arange(-4, 5) * 0.04, 6
_TOLD, _TIMES_BETTER, _TIMES_EDGE = 1.0, 2.5, 2.0
# Where the shapes of images differ by less, a frame of another shape is no other reading.
_SHAPES = 0.03


class BoxReading(NamedTuple):
    """Another meaning of the numbers: the check, what they are called, and how to read them with the images' sizes."""

    check: str
    name: str
    fix: str
    read: Callable[[Boxes, np.ndarray], Boxes]
    order: OtherOrder | None = None


def _of_order(order: OtherOrder) -> BoxReading:
    return BoxReading("box-order", order.name, order.fix, lambda boxes, _: order.to_xyxy(boxes), order)


MIRRORED = BoxReading(
    "flipped-boxes",
    "x counted from the right edge",
    "boxes = [[width - x2, y1, width - x1, y2] for x1, y1, x2, y2 in boxes], or mirror the images back.",
    lambda boxes, sizes: np.abs(np.tile(sizes, 2) * [1, 0, 1, 0] - boxes[:, [2, 1, 0, 3]]),
)
_READINGS = (
    *map(_of_order, OTHER_ORDERS),
    BoxReading(
        "box-order",
        "x1, y1, x1 + height, y1 + width",
        "boxes = [[x1, y1, x1 + y2 - y1, y1 + x2 - x1] for x1, y1, x2, y2 in boxes].",
        lambda boxes, _: to_xyxy(np.hstack([boxes[:, :2], (boxes[:, 2:] - boxes[:, :2])[:, ::-1]]), "xywh"),
    ),
    BoxReading(
        "flipped-boxes",
        "y counted from the lower edge",
        "boxes = [[x1, height - y2, x2, height - y1] for x1, y1, x2, y2 in boxes], or turn the images back.",
        lambda boxes, sizes: np.abs(np.tile(sizes, 2) * [0, 1, 0, 1] - boxes[:, [0, 3, 2, 1]]),
    ),
    MIRRORED,
)
_ONE_SCALE = (
    BoxReading(
        "wrong-frame",
        "boxes whose y was scaled by the factor of x",
        "boxes = [[x1, y1 * height / width, x2, y2 * height / width] for x1, y1, x2, y2 in boxes].",
        lambda boxes, sizes: boxes * np.stack([np.ones(len(boxes)), sizes[:, 1] / sizes[:, 0]] * 2, axis=1),
    ),
    BoxReading(
        "wrong-frame",
        "boxes whose x was scaled by the factor of y",
        "boxes = [[x1 * width / height, y1, x2 * width / height, y2] for x1, y1, x2, y2 in boxes].",
        lambda boxes, sizes: boxes * np.stack([sizes[:, 0] / sizes[:, 1], np.ones(len(boxes))] * 2, axis=1),
    ),
)


def _scaled(factor: float) -> BoxReading:
    """Boxes on a copy that is so many times as large."""
    fix = f"boxes = [[value / {factor:g} for value in box] for box in boxes], or by the very factor of the copy."
    return BoxReading(
        "wrong-frame", f"boxes on a copy about {factor:g} times as large", fix, lambda boxes, _: boxes / factor
    )


#: Those in which a part of the boxes may be, wherever the rows stand.
READINGS_OF_SOME = (*_READINGS, *map(_scaled, (0.5, 0.78, 1.3, 2.0)))


def _of_row(where: str) -> BoxReading:
    return BoxReading("shifted-rows", f"those of the row {where}", JOIN, lambda boxes, _: boxes)


def _padded(side: float) -> BoxReading:
    """Boxes on a copy that was shrunk or enlarged to a longer side and padded to a square."""

    def read(boxes: Boxes, sizes: np.ndarray) -> Boxes:
        scale = side / sizes.max(axis=1, keepdims=True)
        return (boxes - np.tile((side - sizes * scale) / 2, 2)) / scale

    fix = (
        f"scale = {side:g} / max(width, height), left = ({side:g} - scale * width) / 2, top = ({side:g} - scale * "
        "height) / 2; boxes = [[(x1 - left) / scale, (y1 - top) / scale, (x2 - left) / scale, (y2 - top) / scale] for "
        "x1, y1, x2, y2 in boxes]."
    )
    return BoxReading("wrong-frame", f"boxes on a copy padded to {side:g} x {side:g}", fix, read)


@dataclass(frozen=True)
class BoxContent:
    """Boxes and small copies of their images.

    Attributes:
        images: (m, side, side), each of mean 0 and deviation 1; those of neighbouring rows are neighbours.
        boxes: (n, 4), in pixels.
        sizes: (n, 2), width and height of the image of each.
        image: (n,), the image of each.
        labels: (n,), the number of its label.
    """

    images: np.ndarray
    boxes: Boxes
    sizes: np.ndarray
    image: np.ndarray
    labels: np.ndarray

    @cached_property
    def _dealt(self) -> tuple[np.ndarray, np.ndarray]:
        """Other images for each box, (n, :data:`_DEALT`): any, and such as look like its own."""
        count, rng = len(self.images), np.random.default_rng(0)
        choice = (self.image[:, None] + rng.integers(1, count, (len(self.image), min(_CHOICE, count - 1)))) % count
        flat = self.images.reshape(count, -1)
        alike = np.stack([flat[some] @ flat[own] for own, some in zip(self.image, choice, strict=True)])
        best = np.argsort(-alike, axis=1)[:, :_DEALT]
        return choice[:, :_DEALT], np.take_along_axis(choice, best, axis=1)

    @cached_property
    def _own(self) -> np.ndarray:
        return self._gains_of(self._special_as_is)

    @cached_property
    def _special_as_is(self) -> np.ndarray:
        return self._special()

    def _gains_of(self, special: np.ndarray) -> np.ndarray:
        return self._in_common(special, self._special_as_is, np.ones(len(special), dtype=bool))

    def evidence(self, boxes: Boxes) -> np.ndarray:
        """How much likelier boxes are in another reading by what images show, as logarithms; 0 where that tells little.

        Where boxes are misread, the two readings change places: what is gained then is what is lost elsewhere.
        """
        gained = self.gained(boxes)
        middle = float(np.median(gained))
        spread = 1.48 * float(np.median(np.abs(gained - middle))) + 1e-6
        if middle > -_LEAST_LOST * spread:
            return np.zeros(len(gained))
        return np.clip(-2 * gained * middle / spread**2, -_MOST_EVIDENCE, _MOST_EVIDENCE)

    def gained(self, boxes: Boxes) -> np.ndarray:
        """How much more boxes have in common with others of their labels in another reading; 0 where nothing tells."""
        return np.nan_to_num(self._gains_of(self._special(boxes)) - self._own)

    def gains(self, boxes: Boxes | None = None, *, shift: int = 0, alike: bool = False) -> np.ndarray:
        """What each box has in common with others of its label, beyond what its place has on other images.

        Args:
            boxes: in another reading; as they are without.
            shift: by how many images boxes are moved on.
            alike: whether the other images are such as look like its own.

        Returns:
            (n,) of cosines; nan where a label has too few boxes.
        """
        special = self._special(boxes, shift, alike)
        return self._in_common(special, special, np.ones(len(special), dtype=bool))

    def _special(self, boxes: Boxes | None = None, shift: int = 0, alike: bool = False) -> np.ndarray:
        """What lies in and around boxes, less what their places show on other images."""
        parts = ((self.boxes if boxes is None else boxes) / np.tile(self.sizes, 2)).astype(np.float32)
        image = np.clip(self.image + shift, 0, len(self.images) - 1)
        others = np.mean([self._looks(one, parts) for one in self._dealt[alike].T], axis=0)
        return self._looks(image, parts) - others

    def _in_common(self, special: np.ndarray, common: np.ndarray, others: np.ndarray) -> np.ndarray:
        """The cosine of what each box shows with what others of its label have in common; nan where these are few."""
        gains = np.full(len(special), np.nan)
        for label in np.unique(self.labels):
            mine = np.flatnonzero(self.labels == label)
            given = others[mine]
            if given.sum() >= _FEWEST_OF_LABEL:
                # Of all others with the label.
                mean = common[mine][given].sum(axis=0) - common[mine] * given[:, None]
                mean /= np.linalg.norm(mean, axis=1, keepdims=True) + 1e-9
                gains[mine] = (special[mine] * mean).sum(axis=1)
        return gains

    def _looks(self, image: np.ndarray, parts: Boxes) -> np.ndarray:
        """What lies in and around boxes, (n, points), each of mean 0 and length 1."""
        side = self.images.shape[1]
        steps = ((np.arange(_POINTS, dtype=np.float32) + 0.5) / _POINTS) * (1 + 2 * _AROUND) - _AROUND
        whole, rest = [], []
        for start, end in ((parts[:, 0], parts[:, 2]), (parts[:, 1], parts[:, 3])):
            places = np.clip((start[:, None] + steps * (end - start)[:, None]) * side - 0.5, 0, side - 1.01)
            whole.append(places.astype(int))
            rest.append(places - whole[-1])
        (x, y), (right, down) = whole, (rest[0][:, None, :], rest[1][:, :, None])
        which, rows, columns = image[:, None, None], y[:, :, None], x[:, None, :]
        # Between four pixels.
        looks = sum(
            self.images[which, rows + j, columns + i] * (right if i else 1 - right) * (down if j else 1 - down)
            for j in (0, 1)
            for i in (0, 1)
        ).reshape(len(parts), -1)
        looks -= looks.mean(axis=1, keepdims=True)
        return looks / (np.linalg.norm(looks, axis=1, keepdims=True) + 1e-6)

    def diagnose(self) -> Diagnosis | None:
        """The reading, or the shift by a row, in which the boxes fit far better than as they are; or None."""
        own = self._own
        if np.isfinite(own).sum() < FEWEST:
            return None
        n, mean = len(own), np.nanmean(own)
        for shift, where in ((-1, "before"), (1, "after")):
            moved = self.gains(shift=shift)
            if errors(moved) >= _FITS and errors(own) <= _MISSES and np.nanmean(moved) >= 3 * mean:
                found = (
                    f"What the images show inside {n} boxes fits the row {where} ({np.nanmean(moved):.2f} in common, "
                    f"{mean:.2f} as it is)."
                )
                return Diagnosis("shifted-rows", n, n, found, JOIN)
        better = (one for reading in self._readings() if (one := self._better(reading, own)))
        _, reading, gain = max(better, key=lambda one: one[0], default=(0.0, None, 0.0))
        if reading is None:
            return None
        found = (
            f"What the images show inside {n} boxes has more in common if they are read as {reading.name}: {gain:.2f}, "
            f"as they are {mean:.2f}."
        )
        return Diagnosis(reading.check, n, n, found, f"Look at some of them. {reading.fix}", order=reading.order)

    def frame(self, given: float) -> tuple[float, float] | None:
        """The side of the usual frame on which the boxes show most in common, and how much; None without a clear one.

        Args:
            given: the side that the numbers fit; 0 where none does. It stays unless another one is far better.
        """
        most = float(np.quantile(self.boxes[:, 2:], 0.98))
        gains = {
            side: self.gains(self.boxes * np.tile(self.sizes, 2) / side) for side in {given, *SIDES} if side >= most
        }
        means = {side: float(np.nanmean(one)) for side, one in gains.items() if np.isfinite(one).sum() >= FEWEST}
        best = max(means, key=lambda side: means[side], default=given)
        if best == given or errors(gains[best]) < _CLEAR:
            return None
        is_better = given not in gains or errors(gains[best] - gains[given]) >= _BETTER_ALIKE
        return (best, means[best]) if is_better else None

    def _readings(self) -> Iterator[BoxReading]:
        yield from _READINGS
        if np.log(self.sizes[:, 0] / self.sizes[:, 1]).std() >= _SHAPES:
            yield from _ONE_SCALE
            if side := next((side for side in SIDES if side >= self.boxes.max()), None):
                yield _padded(side)

    def _better(self, reading: BoxReading, own: np.ndarray) -> tuple[float, BoxReading, float] | None:
        boxes = reading.read(self.boxes, self.sizes)
        gains = self.gains(boxes)
        better, gain = errors(gains - own), float(np.nanmean(gains))
        if better < _BETTER or gain < _FACTOR * np.nanmean(own):
            return None
        is_so_alike = errors(self.gains(boxes, alike=True) - self.gains(alike=True)) >= _BETTER_ALIKE
        return (better, reading, gain) if is_so_alike else None

    @cached_property
    def _in_readings(self) -> list[tuple[BoxReading, np.ndarray]]:
        before, after = (_of_row(where) for where in ("before", "after"))
        moved = [(before, self._special(shift=-1)), (after, self._special(shift=1))]
        return moved + [(one, self._special(one.read(self.boxes, self.sizes))) for one in self._readings()]

    def better_reading(self, group: np.ndarray) -> tuple[BoxReading, float, float] | None:
        """The reading in which the boxes of a group have far more in common with all others, and how much; or None."""
        if min(group.sum(), (~group).sum()) < _FEWEST_OF_GROUP or errors(self._own[~group]) < _BETTER:
            return None
        special = self._special_as_is
        own = self._in_common(special, special, ~group)[group]
        best: tuple[float, BoxReading, float, float] | None = None
        for reading, moved in self._in_readings:
            gains = self._in_common(moved, special, ~group)[group]
            better = errors(gains - own)
            if better < max(_BETTER_IN_GROUP, best[0] if best else 0):
                continue
            # Else the others are those that are misread, and the group fits as it is.
            among, own_among = (self._in_common(one, one, group)[group] for one in (moved, special))
            if errors(among - own_among) >= _BETTER_AMONG:
                best = better, reading, float(np.nanmean(gains)), float(np.nanmean(own))
        return best and best[1:]

    def is_foreign(self, group: np.ndarray, limit: float) -> tuple[float, float] | None:
        """What the boxes of a group have in common with their labels, and what others have.

        None if that is not less than a part of it, the limit, or cannot be told.
        """
        gains = self._own
        means = np.full(len(gains), np.nan)
        for label in np.unique(self.labels[group]):
            elsewhere = gains[(self.labels == label) & ~group]
            if len(elsewhere) >= _FEWEST_OF_LABEL:
                means[(self.labels == label) & group] = elsewhere.mean()
        here = np.isfinite(means) & np.isfinite(gains)
        if here.sum() < _FEWEST_OF_GROUP or errors(gains[~group]) < _CLEAR:
            return None
        mean, expected = gains[here].mean(), means[here].mean()
        most = mean + 3 * gains[here].std() / here.sum() ** 0.5
        return (mean, expected) if most <= limit * expected else None

    def moved(self) -> tuple[float, float] | None:
        """By which part of width and height boxes have to be moved to differ most from what is around them; or None.

        What other images show in the same places is taken off. Where little differs, nothing can be told.
        """
        sums = np.pad(self.images.cumsum(axis=1).cumsum(axis=2), ((0, 0), (1, 0), (1, 0)))
        parts = self.boxes / np.tile(self.sizes, 2)
        told = np.zeros((len(_MOVES), len(_MOVES)))
        for place in np.ndindex(told.shape):
            boxes = parts + np.tile([_MOVES[place[1]], _MOVES[place[0]]], 2)
            others = np.mean([_contrasts(sums, one, boxes) for one in self._dealt[0].T[:_FEW_DEALT]], axis=0)
            apart = _contrasts(sums, self.image, boxes) - others
            for label in np.unique(self.labels):
                mine = apart[self.labels == label]
                if len(mine) >= _FEWEST_OF_LABEL:
                    told[place] += len(mine) * mine.mean() ** 2 / (mine.var() + 1e-9)
        told /= len(parts)
        y, x = np.unravel_index(told.argmax(), told.shape)
        edge = max(told[[0, -1]].max(), told[:, [0, -1]].max())
        middle = told[len(_MOVES) // 2, len(_MOVES) // 2]
        is_clear = told[y, x] >= max(_TOLD, _TIMES_BETTER * middle, _TIMES_EDGE * edge)
        return (float(_MOVES[x]), float(_MOVES[y])) if is_clear else None


def _contrasts(sums: np.ndarray, image: np.ndarray, parts: Boxes) -> np.ndarray:
    """By how much the mean grey in each box differs from that around it, by the sums of greys above and left."""
    half = (parts[:, 2:] - parts[:, :2]) / 2
    (inner, area), (outer, larger) = (
        _inside(sums, image, boxes) for boxes in (parts, parts + np.concatenate([-half, half], axis=1))
    )
    return inner / np.maximum(area, 0.05) - (outer - inner) / np.maximum(larger - area, 0.05)


def _inside(sums: np.ndarray, image: np.ndarray, parts: Boxes) -> tuple[np.ndarray, np.ndarray]:
    """The sum of greys in each box, and its area."""
    last = sums.shape[1] - 1
    corners = np.clip(parts, 0, 1) * last
    whole = np.minimum(corners.astype(int), last - 1)
    rest = corners - whole

    def below(x: int, y: int) -> np.ndarray:
        # Between four pixels.
        return sum(
            sums[image, whole[:, y] + j, whole[:, x] + i]
            * (rest[:, x] if i else 1 - rest[:, x])
            * (rest[:, y] if j else 1 - rest[:, y])
            for j in (0, 1)
            for i in (0, 1)
        )

    return below(2, 3) - below(0, 3) - below(2, 1) + below(0, 1), np.prod(corners[:, 2:] - corners[:, :2], axis=1)


def errors(values: np.ndarray) -> float:
    """The mean in its standard errors; 0 where there are none."""
    values = values[np.isfinite(values)]
    return 0.0 if len(values) < 2 else float(values.mean() / (values.std() / len(values) ** 0.5 + 1e-12))
