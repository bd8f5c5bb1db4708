"""JSON as models write it, well-formed and otherwise, read under the declaration of `qwen3-vl`."""

import pytest

from grounding_rewards.parsing import RawBoxes, get_box_format, json_syntax, read_boxes
from grounding_rewards.parsing.json_syntax import read_plain_json
from grounding_rewards.parsing.results import MAX_BOXES, MAX_DEPTH

FORMAT = get_box_format("qwen3-vl")
A = [1, 2, 3, 4]
B = [5, 6, 7, 8]
ITEM = '{"bbox_2d": [1, 2, 3, 4]}'

# text, coordinates of all boxes, labels
BOXES = [
    # the family's own form, fenced and bare
    ('```json\n[\n\t{"bbox_2d": [1, 2, 3, 4], "label": "mass"}\n]\n```', A, ["mass"]),
    ('[{"bbox_2d": [1, 2, 3, 4], "label": "mass"}]', A, ["mass"]),
    ('{"bbox_2d": [1, 2, 3, 4], "label": "mass"}', A, ["mass"]),
    # fences in other spellings: no language, closed by ```json, never closed, lost but for the word
    ('```\n[{"bbox_2d": [1, 2, 3, 4]}]\n```', A, [None]),
    ('```JSON\n{"bbox_2d": [1, 2, 3, 4]}\n```', A, [None]),
    ('```json\n[{"bbox_2d": [1, 2, 3, 4]}]\n```json', A, [None]),
    ('```json\n[{"bbox_2d": [1, 2, 3, 4]}]', A, [None]),
    ('json\n[{"bbox_2d": [1, 2, 3, 4]}]', A, [None]),
    # text around it
    ('The findings are: [{"bbox_2d": [1, 2, 3, 4], "label": "mass"}]. It\'s a mass.', A, ["mass"]),
    # two fences, one box each
    ('```json\n{"bbox_2d": [1, 2, 3, 4]}\n```\nand\n```json\n{"bbox_2d": [5, 6, 7, 8]}\n```', A + B, [None] * 2),
    # one object per line, with and without commas
    ('{"bbox_2d": [1, 2, 3, 4]}\n{"bbox_2d": [5, 6, 7, 8]}', A + B, [None, None]),
    ('{"bbox_2d": [1, 2, 3, 4]}, {"bbox_2d": [5, 6, 7, 8]}', A + B, [None, None]),
    # trailing commas, as in an official cookbook
    ('[{"bbox_2d": [1, 2, 3, 4], "label": "mass",},]', A, ["mass"]),
    # stray opening brace, as in another
    ('[\n\t{\n\t{"bbox_2d": [1, 2, 3, 4], "label": "mass"}, {"bbox_2d": [5, 6, 7, 8]}\n]', A + B, ["mass", None]),
    # missing and superfluous closing braces
    ('[{"bbox_2d": [1, 2, 3, 4], "label": "mass"]', A, ["mass"]),
    ('[{"bbox_2d": [1, 2, 3, 4], "label": "mass"}}, {"bbox_2d": [5, 6, 7, 8]}]', A + B, ["mass", None]),
    # Python's repr, also with an apostrophe
    ("[{'bbox_2d': [1, 2, 3, 4], 'label': 'patient's mass'}]", A, ["patient's mass"]),
    ("{'bbox_2d': (1, 2, 3, 4), 'label': None}", A, [None]),
    # keys without quotes
    ("{bbox_2d: [1, 2, 3, 4], label: mass}", A, ["mass"]),
    # full-width punctuation and digits, typographic quotes
    ("［｛“bbox_2d”：［１，２，３，４］，“label”：“肺”｝］", A, ["肺"]),
    # numbers as strings, zero-padded, with signs and exponents
    ('{"bbox_2d": ["1", "2", " 3", "4"]}', A, [None]),
    ('{"bbox_2d": [001, +2, 3e0, 40E-1]}', A, [None]),
    # duplicate keys in one object: every box counts
    ('{"bbox_2d": [1, 2, 3, 4], "label": "a", "bbox_2d": [5, 6, 7, 8], "label": "b"}', A + B, ["a", "b"]),
    ('{"bbox_2d": [1, 2, 3, 4], "bbox_2d": [5, 6, 7, 8], "label": "b"}', A + B, ["b", "b"]),
    # the same, the second key spelled with an escape
    ('{"bbox_2d": [1, 2, 3, 4], "bbox\\u005f2d": [5, 6, 7, 8]}', A + B, [None, None]),
    # several boxes under one key
    ('{"bbox_2d": [[1, 2, 3, 4], [5, 6, 7, 8]], "label": "mass"}', A + B, ["mass", "mass"]),
    # below another key
    ('{"objects": [{"bbox_2d": [1, 2, 3, 4], "label": "mass"}]}', A, ["mass"]),
    # labels under other keys, nested, or of another type
    ('{"bbox_2d": [1, 2, 3, 4], "text_content": "mass"}', A, ["mass"]),
    ('{"bbox_2d": [1, 2, 3, 4], "name_zh": "肿块", "name_en": "mass"}', A, ["mass"]),
    ('{"bbox_2d": [1, 2, 3, 4], "names": {"zh": "肿块", "en": "mass"}}', A, ["mass"]),
    ('{"bbox_2d": [1, 2, 3, 4], "label": 7}', A, ["7"]),
    ('{"bbox_2d": [1, 2, 3, 4], "label": null}', A, [None]),
    ('{"label": "mass", "bbox_2d": [1, 2, 3, 4]}', A, ["mass"]),
    # labels that look like syntax
    ('{"bbox_2d": [1, 2, 3, 4], "label": "see \\"bbox_2d\\": [9, 9, 9, 9]"}', A, ['see "bbox_2d": [9, 9, 9, 9]']),
    ('{"bbox_2d": [1, 2, 3, 4], "label": "<5 mm {nodule]"}', A, ["<5 mm {nodule]"]),
    # the box key of another family, in another case
    ('{"box_2d": [1, 2, 3, 4]}', A, [None]),
    ('{"Position": [1, 2, 3, 4], "Label": "mass"}', A, ["mass"]),
    # the same key in other spellings, and keys that say "coordinates"
    ('{"bounding_box_2d": [1, 2, 3, 4]}', A, [None]),
    ('{"box2d": [1, 2, 3, 4], "className": "mass"}', A, ["mass"]),
    ('{"boundingBox": {"xMin": 1, "yMin": 2, "xMax": 3, "yMax": 4}}', A, [None]),
    ('{"Bounding Box": [1, 2, 3, 4]}', A, [None]),
    ('{"label": "mass", "coordinates": [1, 2, 3, 4]}', A, ["mass"]),
    ('[{"label": "mass", "coords": [[1, 2], [3, 4]]}]', A, ["mass"]),
    ('{"finding": "mass", "bbox_coordinates": [1, 2, 3, 4]}', A, ["mass"]),
    # words under such a key beside a box describe it
    ('{"bbox_2d": [1, 2, 3, 4], "position": "left lower lobe", "label": "mass"}', A, ["mass"]),
    # the final answer in LaTeX
    (r"\boxed{[1, 2, 3, 4]}", A, [None]),
    (r"The answer is $\boxed{[[1, 2, 3, 4], [5, 6, 7, 8]]}$.", A + B, [None, None]),
    (r"\[ \boxed{\text{[1, 2, 3, 4]}} \]", A, [None]),
    (r"\boxed{(1,2),(3,4)}", A, [None]),
    (r"\boxed{1, 2, 3, 4}", A, [None]),
    (r'\boxed{[{"bbox_2d": [1, 2, 3, 4], "label": "mass"}]}', A, ["mass"]),
    (r'\boxed{{"bbox_2d": [1, 2, 3, 4], "label": "mass"}}', A, ["mass"]),
    # braces that are no object
    ("{[1, 2, 3, 4], [5, 6, 7, 8]}", A + B, [None, None]),
    # corners by name in prose, in any brackets, in Markdown, as attributes; their names say the order
    ("x1=1, y1=2, x2=3, y2=4", A, [None]),
    ("x0=1, y0=2, x1=3, y1=4", A, [None]),
    ("min_x: 1, min_y: 2, max_x: 3, max_y: 4", A, [None]),
    ("(x1: 1, y1: 2, x2: 3, y2: 4)", A, [None]),
    ("The mass: y_min = 2, x_min = 1, y_max = 4, x_max = 3.", A, [None]),
    ("mass: left=1, top=2, right=3, bottom=4\nheart: left=5, top=6, right=7, bottom=8", A + B, [None, None]),
    ("- **x1**: 1\n- **y1**: 2\n- **x2**: 3\n- **y2**: 4", A, [None]),
    ('<box x1="1" y1="2" x2="3" y2="4"/>', A, [None]),
    # the whole box in one string
    ('{"bbox_2d": "[1, 2, 3, 4]", "label": "mass"}', A, ["mass"]),
    ('{"bbox_2d": "1 2 3 4"}', A, [None]),
    # corner points: as a nested list, with and without brackets around them, in the tokens of Qwen2-VL
    ('{"bbox_2d": [[1, 2], [3, 4]]}', A, [None]),
    ('{"bbox_2d": (1,2),(3,4), "label": "mass"}', A, ["mass"]),
    ('{"bbox": <|box_start|>(1,2),(3,4)<|box_end|>, "label": "mass"}', A, ["mass"]),
    # corners by name, on their own or under the key
    ('{"x1": 1, "y1": 2, "x2": 3, "y2": 4, "label": "mass"}', A, ["mass"]),
    ('{"bbox_2d": {"x_min": 1, "y_min": 2, "x_max": 3, "y_max": 4}, "label": "mass"}', A, ["mass"]),
    # a box in a box: the order of the text
    ('{"bbox_2d": [1, 2, 3, 4], "label": "lung", "parts": [{"bbox_2d": [5, 6, 7, 8]}]}', A + B, ["lung", None]),
    ('{"parts": [{"bbox_2d": [1, 2, 3, 4]}], "bbox_2d": [5, 6, 7, 8], "label": "lung"}', A + B, [None, "lung"]),
    # attributes of HTML
    ('<p data-bbox="1 2 3 4">mass</p><img data-bbox="5 6 7 8"/>', A + B, [None, None]),
    # nothing but numbers
    ("1,2,3,4", A, [None]),
    ("The box is:\n1, 2, 3, 4\nmass: 5 6 7 8", A + B, [None, None]),
    # outside JSON: what other families write
    ("The mass is at (1,2),(3,4)", A, [None]),
    # labels in a list of their own
    ('{"bboxes": [[1, 2, 3, 4], [5, 6, 7, 8]], "labels": ["a", "b"]}', A + B, ["a", "b"]),
    ('{"bbox_2d": [[1, 2, 3, 4], [5, 6, 7, 8]], "label": ["a", "b"]}', A + B, ["a", "b"]),
    ('{"bbox_2d": [1, 2, 3, 4], "label": ""}', A, [None]),
    # JSON in a string, and in Markdown
    (r"[{\"bbox_2d\": [1, 2, 3, 4], \"label\": \"mass\"}]", A, ["mass"]),
    (r'[{"bbox\_2d": [1, 2, 3, 4]}]', A, [None]),
    # a stray brace around everything
    ('{\n[{"bbox_2d": [1, 2, 3, 4]}]', A, [None]),
    # a box outside is one where the JSON holds none, whatever that says
    ('{"bbox_2d": []}\n[1, 2, 3, 4]', A, [None]),
    ('<box>(1,2),(3,4)</box> {"bbox_2d": null}', A, [None]),
    ('{"bbox": []}\nmass: 1 2 3 4', A, [None]),
    # lists without keys
    ("[1, 2, 3, 4]", A, [None]),
    ("[[1, 2, 3, 4], [5, 6, 7, 8]]", A + B, [None, None]),
    # odd boxes are kept as written: false positives later, not "no answer"
    ('{"bbox_2d": [0, 0, 0, 0]}', [0, 0, 0, 0], [None]),
    ('{"bbox_2d": [9, 9, 1, -1]}', [9, 9, 1, -1], [None]),
    # a no-finding statement beside a box
    ('No findings. [{"bbox_2d": [1, 2, 3, 4]}]', A, [None]),
    # numbers in prose around the answer's own objects are no boxes, and no broken ones
    ('The mass is near [9, 9, 9, 9]: [{"bbox_2d": [1, 2, 3, 4], "label": "mass"}]', A, ["mass"]),
    ('[2] masses: {"bbox_2d": [1, 2, 3, 4]}, {"bbox_2d": [5, 6, 7, 8]}', A + B, [None, None]),
    # the string ends with its line, the next line is read
    ('[{"label": "mass, "bbox_2d": [9, 9],\n {"bbox_2d": [1, 2, 3, 4]}]', A, [None]),
]

# text, what is left of it, the reasons
REJECTS = [
    ('{"bbox_2d": [1, 2, 3]}', [], {"wrong_count": 1}),
    ('{"bbox_2d": [1, 2, 3, 4, 5]}', [], {"wrong_count": 1}),
    ('{"bbox_2d": [1, 2]}', [], {"point": 1}),
    ('{"bbox_2d": [1, 2, 3, 4, 5, 6, 7, 8]}', [], {"quad": 1}),
    ('{"bbox_2d": [1, 2, 3, 4, 5, 6, 7, 8, 9]}', [], {"box_3d": 1}),
    ('{"bbox_3d": [1, 2, 3, 4, 5, 6, 7, 8, 9], "label": "car"}', [], {"box_3d": 1}),
    ('{"point_2d": [1, 2], "label": "mass"}', [], {"point": 1}),
    # a point beside a box is no failed attempt at a box
    ('{"bbox_2d": [1, 2, 3, 4], "point_2d": [1, 2]}', A, {}),
    ('{"bbox_2d": [1, 2, NaN, 4]}', [], {"not_finite": 1}),
    ('{"bbox_2d": [1, 2, 3, Infinity]}', [], {"not_finite": 1}),
    ('{"bbox_2d": [1, 2, 3, 1e400]}', [], {"number_too_large": 1}),
    ('{"bbox_2d": [1, 2, 3, 1000000000]}', [], {"number_too_large": 1}),
    ('{"bbox_2d": [true, 2, 3, 4]}', [], {"not_a_number": 1}),
    ('{"bbox_2d": [1, 2, null, 4]}', [], {"missing_number": 1}),
    ('{"bbox_2d": [1, 2, 3, 4%]}', [], {"not_a_number": 1}),
    ('{"bbox_2d": "1, 2, 3"}', [], {"wrong_count": 1}),
    ("[x1, y1, x2, y2]", [], {"placeholder": 1}),
    ('{"bbox_2d": [x1, y1, x2, y2], "label": "<label>"}', [], {"placeholder": 1}),
    ('{"image_size": [1, 2, 3, 4]}', [], {"unknown_key": 1}),
    # a key that says less than coordinates, corners and a key in one object
    ('{"area": [1, 2, 3, 4]}', [], {"unknown_key": 1}),
    ('{"label": "mass", [1, 2, 3, 4]}', [], {"unknown_key": 1}),
    ('{"coordinates": [1, 2]}', [], {"point": 1}),
    ('{"bbox_2d": "left lower lobe"}', [], {"words": 1}),
    ("x0=1, y0=2, x1=3. y1 is not known.", [], {"wrong_count": 1}),
    # a position and a size are no corners where the order declares none
    ('{"bbox_2d": {"x": 1, "y": 2, "width": 2, "height": 2}}', [], {"not_a_number": 1}),
    ("x1=1, y1=2, x2=3. y2 is not known.", [], {"wrong_count": 1}),
    ("x1=1, y1=2, x2=3, x1=5, y1=6, x2=7, y2=8", B, {"wrong_count": 1}),
    # broken boxes outside JSON that holds none
    ('{"bbox_2d": []} [1, 2, 3]', [], {"wrong_count": 1}),
    ('{"bbox_2d": [left, top, right, bottom]}', [], {"placeholder": 1}),
    # closed by the brace only
    ('[{"bbox_2d": [1, 2, 3, 4}, {"bbox_2d": [5, 6, 7, 8]}]', B, {"unclosed": 1}),
    # one bad box never voids the others, and 3 + 5 numbers are not two boxes
    ('[{"bbox_2d": [1, 2, 3]}, {"bbox_2d": [1, 2, 3, 4, 5]}, {"bbox_2d": [5, 6, 7, 8]}]', B, {"wrong_count": 2}),
    ('{"bbox_2d":' + "[" * MAX_DEPTH + "1, 2, 3, 4" + "]" * MAX_DEPTH + "}", [], {"too_deep": 1}),
    ('{"bbox_2d":' + "[" * (MAX_DEPTH - 1) + "1, 2, 3, 4" + "]" * (MAX_DEPTH - 1) + "}", A, {}),
    ('{"bbox_2d": [1, 2, 3, 4]}' * (MAX_BOXES + 5), A * MAX_BOXES, {"too_many_boxes": 1}),
]

# text that breaks off, the boxes that were complete before
TRUNCATED = [
    ('[{"bbox_2d": [1, 2, 3, 4], "label": "mass"}', A),
    ('[{"bbox_2d": [1, 2, 3, 4], "label": "ma', A),
    ('```json\n[{"bbox_2d": [1, 2, 3, 4]}, {"bbox_2d": [5, 6, 7, 8', A),
    ('[{"bbox_2d": [1, 2, 3, 4]}, {"bbox_2d": [5, 6', A),
    ('[{"bbox_2d": [1, 2, 3, 4]}, {"bbo', A),
    ("[", []),
    ("mass: x1=1, y1=2, x2=3, y2=4; nodule: x1=5, y1=6, x2=7,", A),
    (r"\boxed{[1, 2, 3", []),
    # a number or a string in which the text breaks off
    ('{"bbox_2d": "1, 2, 3, 4', []),
    ("[{'bbox_2d': [1, 2, 3, 4]}, {'bbox_2d': '5, 6, 7, 8", A),
    ('{"bbox_2d": ["1 2", "3 4', []),
    ('{"x1": 1, "y1": 2, "x2": 3, "y2": 4', []),
    # four numbers of nine
    ('{"label": "box", "bbox_3d": [0.5, 1.25, 2.5, 0.75, ', []),
    # a digit loop
    ('[{"bbox_2d": [1, 2, 3, 4]}, {"bbox_2d": [5, ' + "9" * 1000, A),
]

EMPTY = [
    "[]",
    "```json\n[]\n```",
    "```json\n[\n]\n```",
    "[ ]",
    "null",
    '{"finding": false}',
    '{"boxes": []}',
    '{"bbox_2d": [], "label": "mass"}',
    '{"bbox_2d": null}',
    "```json\n[]\n```\nThe lungs are clear.",
    "['No Objects']",
    '{"bbox_2d": "None"}',
    '{"bbox_2d": "No Objects"}',
    '{"bbox_2d": ["none"]}',
    '{"bbox_2d": [null, null, null, null]}',
    '{"answer": []}',
    # words in the JSON that an instruction would use
    '{"output": []}',
    '{"defects": [], "verdict": "pass"}',
    # a bare label, a label or a member that denies, words that only name what was asked for
    '{"label": {"en": "mass", "zh": "肿块"}, "bbox_2d": null}',
    '{"label": "none", "confidence": 0.99, "bbox_2d": null}',
    '{"label": "large left mass", "present": false, "confidence": 0.98, "bbox_2d": null}',
    '{"label": "mass", "severity": "none", "note": "No mass is seen.", "score": 0, "bbox_2d": null}',
    '{"normal": true, "bbox_2d": null}',
    "Pneumothorax: []",
    "Detected objects: []",
    "Is there a large mass? []",
    "The left lung is clear, no left mass is seen. []",
]

UNPARSEABLE = [
    ("{}", "nothing_stated"),
    ('{"finding": true}', "finding_without_box"),
    # it says both
    ('{"finding": true, "bbox_2d": []}', "finding_without_box"),
    ('{"is_anomaly": true, "bbox_2d": null}', "finding_without_box"),
    ('{"normal": false, "boxes": []}', "finding_without_box"),
    # more than a label, in each spelling of no box, nested, behind prose
    *(
        (f'[{{"label": "pneumothorax", "severity": "severe", "bbox_2d": {none}}}]', "finding_without_box")
        for none in ("null", "[]", '""', '"none"', "[null, null, null, null]")
    ),
    ('{"findings": [{"label": "mass", "confidence": 0.95, "bbox_2d": null}]}', "finding_without_box"),
    ('{"findings": [{"label": "mass", "confidence": 0.95}], "bbox_2d": null}', "finding_without_box"),
    ('{"pneumothorax": {"size": "3 cm", "bbox_2d": null}}', "finding_without_box"),
    ('{"label": "large left pneumothorax", "bbox_2d": null}', "finding_without_box"),
    ('{"label": "mass", "description": "A mass is seen.", "bbox_2d": null}', "finding_without_box"),
    ('The image shows a mass. [{"label": "mass", "bbox_2d": null}]', "finding_without_box"),
    ("There is a large pneumothorax. []", "finding_without_box"),
    # no list
    ("[) is seen.", "nothing_stated"),
    ('{"boxes": [)}', "nothing_stated"),
    ("No effusion, but there is a large mass. []", "finding_without_box"),
    ("```json\n[]\n```\nCardiomegaly is present.", "finding_without_box"),
    # a finding that has a name, and an empty list of something else
    ('{"label": "mass", "attributes": []}', "nothing_stated"),
    ("A mass in the left lung.", "nothing_stated"),
    # numbers in a sentence, without brackets
    ("The mass is at 1, 2, 3, 4", "nothing_stated"),
    # coordinates in code
    ("x_min, y_min, x_max, y_max = 100, 200, 300, 400", "echoed_prompt"),
    ("x1=..., y1=..., x2=..., y2=...", "echoed_prompt"),
    ("1, 2, 3", "nothing_stated"),
    ("Return a list of boxes, or [] if there is none.", "echoed_prompt"),
    ("If nothing is found return 'No Objects'.", "echoed_prompt"),
    ("", "no_answer"),
]


#: Names of corners: numbers from 0 and from 1, in any case, either part first, whole words, letters, points.
CORNERS = (
    *("x1 y1 x2 y2", "x0 y0 x1 y1", "xmin ymin xmax ymax", "MIN_X MIN_Y MAX_X MAX_Y", "minX minY maxX maxY"),
    *("x_left y_top x_right y_bottom", "left_x top_y right_x bottom_y", "x-start y-start x-end y-end"),
    *("left top right bottom", "L T R B"),
)


@pytest.mark.parametrize("names", CORNERS)
@pytest.mark.parametrize("box_format", ["qwen3-vl", "gemini"])
def test_corners_by_name(names, box_format):
    # whatever the format's order: on their own, and under a box key
    corners = ", ".join(f'"{name}": {number}' for name, number in zip(names.split(), A, strict=True))
    for text in (f'{{{corners}, "object_name": "mass"}}', f'[{{"object_name": "mass", "bbox": [{{{corners}}}]}}]'):
        raw = read_boxes(text, get_box_format(box_format))
        assert (raw.coords, raw.labels) == (A, ["mass"])


@pytest.mark.parametrize(
    "points",
    [
        '"top_left": [1, 2], "bottom_right": [3, 4]',
        '"topLeft": {"x": 1, "y": 2}, "bottomRight": {"y": 4, "x": 3}',
    ],
)
def test_corner_points_by_name(points):
    assert read_boxes(f'{{"bbox_2d": {{{points}}}}}', FORMAT).coords == A


@pytest.mark.parametrize(
    ("order", "box"),
    [
        ("xywh", '{"x": 1, "y": 2, "width": 2, "height": 2}'),
        ("cxcywh", '{"x": 2, "y": 3, "width": 2, "height": 2}'),
        # the name says that it is the centre
        ("xywh", '{"cx": 2, "cy": 3, "w": 2, "h": 2}'),
    ],
)
def test_position_and_size_by_name(order, box):
    declared = get_box_format({"syntax": "json", "order": order, "space": "norm1000"})
    for text in (box, f'{{"bbox": {box}, "label": "mass"}}'):
        assert read_boxes(text, declared).coords == A


@pytest.mark.parametrize(
    "box",
    [
        # numbers in strings, corner points in strings, a unit, names in strings
        *(
            '["1 2", "3 4"]',
            '["1,2", "3,4"]',
            '["(1,2)", "(3,4)"]',
            '["1px", "2px", "3px", "4px"]',
            "[1px, 2px, 3px, 4px]",
        ),
        *('"x1=1, y1=2, x2=3, y2=4"', '["x1=1", "y1=2", "x2=3", "y2=4"]', '"1．0，2，3，4"'),
        # tags for brackets, and other brackets
        *("<bbox>1 2 3 4</bbox>", '"<bbox>1 2 3 4</bbox>"', "[<bbox>1, 2, 3, 4</bbox>]", "<box>[[1, 2, 3, 4]]</box>"),
        *("[1, 2, 3, 4</bbox>", "[1, 2, 3, 4)", "(1, 2, 3, 4]"),
        # remarks
        *("[1, 2, // top left, [x]\n3, 4]", "[1, 2, # top left\n3, 4]", "[1, 2, 3, /* bottom */ 4]"),
    ],
)
def test_spellings_of_a_box(box):
    item = f'{{"bbox_2d": {box}, "label": "mass"}}'
    raw = read_boxes(f"[{item}, {item}]", FORMAT)
    assert raw == RawBoxes(A + A, ["mass"] * 2, [None] * 2, "boxes", {})


@pytest.mark.parametrize(
    "text",
    [
        # in comments of each kind, in a list or before it
        *(
            "[\n// OLD,\nNEW\n]",
            "[\n# OLD,\nNEW]",
            "[/* OLD, */ NEW]",
            "[NEW, // OLD\n]",
            "// OLD\nNEW",
            "/* [OLD] */ [NEW]",
        ),
        # struck out
        *("~~OLD~~ NEW", "<del>[OLD]</del> [NEW]", "<strike>OLD</strike>NEW"),
    ],
)
def test_a_box_that_is_taken_back_is_none(text):
    text = text.replace("OLD", '{"bbox_2d": [5, 6, 7, 8]}').replace("NEW", '{"bbox_2d": [1, 2, 3, 4]}')
    assert read_boxes(text, FORMAT).coords == A


def test_marks_of_comments_in_words_are_words():
    label = "a /* b */ ~~c~~ // d # e"
    assert read_boxes(f'[{{"bbox_2d": [1, 2, 3, 4], "label": "{label}"}}]', FORMAT).labels == [label]
    assert read_boxes(f"Nodule #1, see https://a.b: {ITEM}", FORMAT).coords == A
    assert read_boxes(f"# Findings\n{ITEM}", FORMAT).coords == A


@pytest.mark.parametrize(("text", "coords", "labels"), BOXES)
def test_boxes(text, coords, labels):
    raw = read_boxes(text, FORMAT)
    assert (raw.coords, raw.labels, raw.status) == (coords, labels, "boxes")
    assert raw.scores == [None] * len(labels)


@pytest.mark.parametrize(("text", "coords", "rejected"), REJECTS)
def test_rejects(text, coords, rejected):
    raw = read_boxes(text, FORMAT)
    assert (raw.coords, raw.rejected) == (coords, rejected)
    assert raw.status == ("boxes" if coords else "unparseable")


@pytest.mark.parametrize(("text", "coords"), TRUNCATED)
def test_truncated(text, coords):
    raw = read_boxes(text, FORMAT)
    assert (raw.coords, raw.status) == (coords, "truncated")


@pytest.mark.parametrize("text", EMPTY)
def test_empty(text):
    assert read_boxes(text, FORMAT) == RawBoxes([], [], [], "empty", {})


@pytest.mark.parametrize(("text", "reason"), UNPARSEABLE)
def test_unparseable(text, reason):
    assert read_boxes(text, FORMAT) == RawBoxes([], [], [], "unparseable", {reason: 1})


@pytest.mark.parametrize(
    ("member", "score"),
    [('"confidence": 0.9', 0.9), ("'Confidence': 1", 1.0), ('"score": "0.5"', 0.5), ('"score": "high"', None)],
)
def test_stated_confidence(member, score):
    raw = read_boxes(f'{{"bbox_2d": [1, 2, 3, 4], {member}}}', FORMAT)
    assert raw.scores == [score]


@pytest.mark.parametrize(
    "text",
    [
        '[{"bbox_2d": [1, 2, 3, 4], "label": "mass"}]',
        '```json\n[\n\t{"bbox_2d": [1.5, 2, 3, 4], "label": "mass"},\n\t{"bbox_2d": [1, 2, 3, 4]}\n]\n```',
        '{"bbox_2d": [1, 2, 3, 4]}',
        "[]",
    ],
)
def test_plain_json_takes_the_quick_way(text):
    assert read_plain_json(text, FORMAT) is not None


def test_what_the_decoder_reads_is_what_the_tokens_say(monkeypatch):
    texts = [text for text, *_ in BOXES]
    texts += [f'{{"bbox_2d": {"[" * (MAX_DEPTH - 1)}1, 2, 3, 4{"]" * (MAX_DEPTH - 1)}}}', "[" * 99 + "]" * 99]
    texts += ['[{"bbox_2d": [1.0, -2, 3e1, NaN], "bbox_2d": [1, 2, 3, 4], "label": "a\\n"}, {"bbox_2d": [1, 2']
    decoded = [read_boxes(f"It shows {text}", FORMAT) for text in texts]
    monkeypatch.setattr(json_syntax, "_decoded", lambda *_: None)
    assert decoded == [read_boxes(f"It shows {text}", FORMAT) for text in texts]
