"""Boxes outside JSON, in the spellings of all families."""

import pytest

from grounding_rewards.parsing import RawBoxes, get_box_format, read_boxes
from grounding_rewards.parsing.bracket_syntax import read_plain_items, read_plain_lists, read_plain_sentences
from grounding_rewards.parsing.results import MAX_BOXES, MAX_GROUPS

A = [0.1, 0.2, 0.3, 0.4]
B = [0.5, 0.6, 0.7, 0.8]
P = [1, 2, 3, 4]
Q = [5, 6, 7, 8]

# format, text, coordinates, labels
BOXES = [
    ("answer-list", "<answer>[0.1,0.2,0.3,0.4]</answer>", A, [None]),
    ("answer-list", "<answer>[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]</answer>", A + B, [None, None]),
    ("answer-list", "<answer>[[0.1,0.2,0.3,0.4],[0.5,0.6,0.7,0.8]]</answer>", A + B, [None, None]),
    # one box per line, no commas between
    ("answer-list", "<answer>\n[0.1, 0.2, 0.3, 0.4]\n[0.5, 0.6, 0.7, 0.8]\n</answer>", A + B, [None, None]),
    # the closing tag is missing, the content is complete
    ("answer-list", "<think>…</think><answer>[0.1,0.2,0.3,0.4]", A, [None]),
    # no tags at all
    ("answer-list", "[0.1,0.2,0.3,0.4]", A, [None]),
    # a comma left over, in front of the closing tag: broken, not cut off
    ("answer-list", "<answer>[0.1,0.2,0.3,0.4],</answer>", A, [None]),
    # brackets that do not belong together, a tag in the place of one
    ("answer-list", "[0.1, 0.2, 0.3, 0.4), [0.5, 0.6, 0.7, 0.8]", A + B, [None, None]),
    (
        "internvl",
        "<ref>mass</ref><box>[[1, 2, 3, 4</box><ref>heart</ref><box>[[5, 6, 7, 8]]</box>",
        P + Q,
        ["mass", "heart"],
    ),
    ("brackets", "mass [1, 2, 3, 4</bbox>", P, ["mass"]),
    # the end of a box that is written like its beginning
    ("minicpm-v", "<ref>mass</ref><box>1 2 3 4<box> is seen.", P, ["mass"]),
    # a segmentation is no box, and no broken one
    ("internvl", "<ref>mass</ref><seg>[[9, 9], [9, 9]]</seg><box>[[1, 2, 3, 4]]</box>", P, ["mass"]),
    # full-width points, corner points in strings
    ("radvlm", "At [０．１，０．２，０．３，０．４].", A, [None]),
    ("answer-list", '["1 2", "3 4"]', P, [None]),
    # struck out, commented out
    ("radvlm", "At ~~[0.5, 0.6, 0.7, 0.8]~~ [0.1, 0.2, 0.3, 0.4].", A, [None]),
    ("answer-list", "// [0.5, 0.6, 0.7, 0.8]\n[0.1, 0.2, 0.3, 0.4]", A, [None]),
    # lists that count
    *(
        ("radvlm", f"{words} {numbers}, at [0.1, 0.2, 0.3, 0.4].", A, [None])
        for words in ("Zones", "teeth", "series", "days", "vertebrae", "pages", "ribs")
        for numbers in ("(2, 3, 4, 5)", "[2, 3, 4, 5]")
    ),
    # a label is none, without another list
    ("ferret", "ribs [1, 2, 3, 4]", P, ["ribs"]),
    # other separators and brackets
    ("answer-list", "<answer>[0.1 0.2 0.3 0.4]; (0.5, 0.6, 0.7, 0.8)</answer>", A + B, [None, None]),
    ("answer-list", "<answer>［0.1，0.2，0.3，0.4］</answer>", A, [None]),
    # the numbers are norm1 because the format says so, however large they are
    ("answer-list", "<answer>[100, 200, 300, 400]</answer>", [100, 200, 300, 400], [None]),
    # the family's own form
    (
        "qwen2-vl",
        "<|object_ref_start|>mass<|object_ref_end|><|box_start|>(1,2),(3,4)<|box_end|>"
        "<|object_ref_start|>heart<|object_ref_end|><|box_start|>(5,6),(7,8)<|box_end|>",
        P + Q,
        ["mass", "heart"],
    ),
    # decoded with its end token
    (
        "qwen2-vl",
        "<|object_ref_start|>mass<|object_ref_end|><|box_start|>(1,2),(3,4)<|box_end|><|im_end|>",
        P,
        ["mass"],
    ),
    # one label for two boxes
    (
        "qwen2-vl",
        "<|object_ref_start|>mass<|object_ref_end|><|box_start|>(1,2),(3,4)<|box_end|>"
        " and <|box_start|>(5,6),(7,8)<|box_end|>",
        P + Q,
        ["mass", "mass"],
    ),
    # numbers inside a label are not a box
    (
        "qwen2-vl",
        "<|object_ref_start|>a (9,9),(9,9)<|object_ref_end|><|box_start|>(1,2),(3,4)<|box_end|>",
        P,
        ["a (9,9),(9,9)"],
    ),
    # a label that was abandoned
    (
        "qwen2-vl",
        "<|object_ref_start|>a<|object_ref_start|>b<|object_ref_end|><|box_start|>(1,2),(3,4)<|box_end|>",
        P,
        ["b"],
    ),
    # box tokens without a label
    ("qwen2-vl", "<|box_start|>(1,2),(3,4)<|box_end|>", P, [None]),
    # lists inside box tokens, from a user's fine-tuning
    ("qwen2-vl", "<|box_start|>[1,2,3,4],[5,6,7,8]<|box_end|>", P + Q, [None, None]),
    # special tokens stripped: boxes run together, labels stick to them
    ("qwen2-vl", "(1,2),(3,4)(5,6),(7,8)", P + Q, [None, None]),
    ("qwen2-vl", "left lung(1,2),(3,4)(5,6),(7,8), heart (1,2),(3,4)", P + Q + P, ["left lung"] * 2 + ["heart"]),
    # in prose
    ("radvlm", "The mass is located at [0.1, 0.2, 0.3, 0.4] and [0.5, 0.6, 0.7, 0.8].", A + B, [None, None]),
    # other brackets in prose are no boxes
    ("radvlm", "In this image (AP view) [sic] the mass (2) is at [0.1, 0.2, 0.3, 0.4].", A, [None]),
    # a citation
    ("radvlm", "As before [1], the mass is at [0.1, 0.2, 0.3, 0.4].", A, [None]),
    # a negative beside a box
    ("radvlm", "No effusion. Mass at [0.1, 0.2, 0.3, 0.4].", A, [None]),
    # Qwen-VL: two boxes of one label, a blank in the label, prose between
    (
        "qwen-vl",
        "<ref> Two nodules</ref><box>(1,2),(3,4)</box><box>(5,6),(7,8)</box> and"
        "<ref> a mass</ref><box>(1,2),(3,4)</box>",
        P + Q + P,
        ["Two nodules"] * 2 + ["a mass"],
    ),
    # stripped: labels stick to the brackets
    ("qwen-vl", "Two nodules(1,2),(3,4)(5,6),(7,8) and a mass(1,2),(3,4)", P + Q + P, ["Two nodules"] * 2 + ["a mass"]),
    # a closing tag that lost its name, one that is another
    ("qwen-vl", "<ref>mass</ref><box>1,2,3,4> is seen", P, ["mass"]),
    ("qwen-vl", "<ref>mass</ref><box>1,2,3,4</ref>", P, ["mass"]),
    # boxes that stand closer in pairs of points
    ("qwen-vl", "(1,2),(3,4), (5,6),(7,8)", P + Q, [None, None]),
    ("qwen-vl", "(1,2)(3,4)", P, [None]),
    # InternVL: lists in a list; stripped
    ("internvl", "<ref>mass</ref><box>[[1, 2, 3, 4], [5, 6, 7, 8]]</box>", P + Q, ["mass"] * 2),
    ("internvl", "the mass.[[1, 2, 3, 4]], heart[[5, 6, 7, 8]]", P + Q, ["the mass.", "heart"]),
    ("internvl", "<box>[[1,2],[3,4]]</box>", P, [None]),
    # a digit in the label
    ("internvl", "<ref>14</ref><box>[[1, 2, 3, 4]]</box>", P, ["14"]),
    # All-Seeing: boxes behind a predicate repeat subject and object
    (
        "all-seeing",
        "a <ref>bus</ref><box>[[1, 2, 3, 4]]</box> <pred>on</pred><box>[[1, 2, 3, 4]]</box><box>[[5, 6, 7, 8]]</box>"
        " a <ref>road</ref><box>[[5, 6, 7, 8]]</box>",
        P + Q,
        ["bus", "road"],
    ),
    # DeepSeek-VL2; DeepSeek-OCR with the label inside
    ("deepseek-vl2", "<|ref|>mass<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|><｜end▁of▁sentence｜>", P, ["mass"]),
    ("deepseek-vl2", "<|det|>title [1,2,3,4]<|/det|>", P, ["title"]),
    # GLM: brackets of any kind; JSON on request
    ("glm-4v", "It is at <|begin_of_box|>[[1,2,3,4],[5,6,7,8]]<|end_of_box|>", P + Q, [None, None]),
    ("glm-4v", "<|begin_of_box|><1,2,3,4><|end_of_box|>", P, [None]),
    ("glm-4v", "<|begin_of_box|>(1,2,3,4)<|end_of_box|>", P, [None]),
    ("glm-4v", '[{"bbox_2d": [1, 2, 3, 4], "label": "mass"}]', P, ["mass"]),
    # CogVLM: zero-padded, several after semicolons, a word in brackets before
    ("cogvlm", "[button] Report at the box [[001,002,003,004;005,006,007,008]]", P + Q, [None, None]),
    # MiniCPM-V: blanks between the numbers
    ("minicpm-v", "<ref>mass</ref><box>1 2 3 4</box>", P, ["mass"]),
    # Shikra, Ferret
    (
        "shikra",
        "mass[0.100,0.200,0.300,0.400;0.500,0.600,0.700,0.800] and heart[0.100,0.200,0.300,0.400]",
        A + B + A,
        ["mass", "mass", "heart"],
    ),
    ("ferret", "a mass [1, 2, 3, 4] and the heart [5, 6, 7, 8].", P + Q, ["a mass", "the heart"]),
    # one per line, label first
    ("brackets", "Modality: X-ray\nHeart [1, 2, 3, 4]\nLeft Lung [5, 6, 7, 8]", P + Q, ["Heart", "Left Lung"]),
    # CheXagent-2 puts blanks everywhere; CheXagent-8b has the other tags
    ("chexagent-2", "<|ref|> mass <|/ref|> <|box|> (1,2),(3,4) <|/box|>", P, ["mass"]),
    ("chexagent", "<ref>mass</ref><box>(1,2),(3,4)</box>", P, ["mass"]),
    # UniVG-R1
    ("univg-r1", "<think>…</think><answer>(1,2),(3,4)</answer>", P, [None]),
    # PaliGemma: y first, label behind, a separator left over, segmentation between box and label
    (
        "paligemma",
        "<loc0002><loc0001><loc0004><loc0003> mass ; <loc0006><loc0005><loc0008><loc0007> heart ; ",
        P + Q,
        ["mass", "heart"],
    ),
    ("paligemma", "<loc0002><loc0001><loc0004><loc0003> <seg114><seg074> wall<eos>", P, ["wall"]),
    ("paligemma", "<loc0002><loc0001><loc0004><loc0003>", P, [None]),
    # Florence-2: one label for many boxes, its own start and end tokens
    (
        "florence-2",
        "</s><s>mass<loc_1><loc_2><loc_3><loc_4><loc_5><loc_6><loc_7><loc_8>heart<loc_1><loc_2><loc_3><loc_4></s>",
        P + Q + P,
        ["mass", "mass", "heart"],
    ),
    # two boxes without a label, one of them flat: no corners of a quadrilateral in turn
    (
        "florence-2",
        "<loc_10><loc_20><loc_30><loc_40><loc_50><loc_60><loc_70><loc_60>",
        [10, 20, 30, 40, 50, 60, 70, 60],
        [None] * 2,
    ),
    # Kosmos-2: two cells of a grid of 32; the vector of transformers' own documentation
    (
        "kosmos-2",
        "<phrase> mass</phrase><object><patch_index_0044><patch_index_0863></object>",
        [0.390625, 0.046875, 0.984375, 0.828125],
        ["mass"],
    ),
    (
        "kosmos-2",
        "<phrase>mass</phrase><object><patch_index_0044><patch_index_0863></delimiter_of_multi_objects/>"
        "<patch_index_0044><patch_index_0863></object>",
        [0.390625, 0.046875, 0.984375, 0.828125] * 2,
        ["mass"] * 2,
    ),
    # MAIRA-2: a finding without a box beside one that has one
    ("maira-2", "<obj>a mass <box><x1><y2><x3><y4></box></obj><obj>The heart is normal.</obj>", P, ["a mass"]),
    ("maira-2", "<box><x1><y2><x3><y4></box><box><x5><y6><x7><y8></box>", P + Q, [None, None]),
    # LocateAnything in both published spellings
    ("locate-anything", "<ref>mass</ref><box><1><2><3><4></box><box><5><6><7><8></box>", P + Q, ["mass"] * 2),
    ("locate-anything", "<ref>mass</ref><box>(1,2,3,4)</box>", P, ["mass"]),
    # Rex-Omni, tags there and stripped
    (
        "rex-omni",
        "<|object_ref_start|>mass<|object_ref_end|><|box_start|><1><2><3><4>,<5><6><7><8><|box_end|>, "
        "<|object_ref_start|>heart<|object_ref_end|><|box_start|><1><2><3><4><|box_end|>",
        P + Q + P,
        ["mass", "mass", "heart"],
    ),
    ("rex-omni", "mass<1><2><3><4>,<5><6><7><8>, heart<1><2><3><4>", P + Q + P, ["mass", "mass", "heart"]),
    # Ovis2.5 writes fractions in Qwen-VL's tags
    ("ovis2.5", "<ref>mass</ref><box>(0.1,0.2),(0.3,0.4)</box><box>(0.5,0.6),(0.7,0.8)</box>", A + B, ["mass"] * 2),
    # Perceptron: the tests of its SDK; a collection, quoted syntax in a label, other attributes
    ("perceptron", '<point_box mention="cat"> (10,20) (100,200) </point_box>', [10, 20, 100, 200], ["cat"]),
    (
        "perceptron",
        '<collection mention="dog"> <point_box> (10,20) (30,40) </point_box> '
        '<point_box mention="named"> (1,2) (3,4) </point_box> </collection><point_box> (5,6) (7,8) </point_box>',
        [10, 20, 30, 40, *P, *Q],
        ["dog", "named", None],
    ),
    ("perceptron", '<point_box mention="a > b"> (10,20) (30,40) </point_box>', [10, 20, 30, 40], ["a > b"]),
    (
        "perceptron",
        'No. <point_box mention="traffic light" t="0.5">(808, 247), (863, 386)</point_box>',
        [808, 247, 863, 386],
        ["traffic light"],
    ),
    # Seed: midscene's test
    ("seed-vl", "<bbox>163 494 738 864</bbox>", [163, 494, 738, 864], [None]),
    ("seed-vl", " <bbox>163,494,738,864</bbox> ", [163, 494, 738, 864], [None]),
    # MolmoAct2: the image's number, then one for each box
    ("molmoact2", '<boxes coords="1 1 160 230 480 590">objects</boxes>', [160, 230, 480, 590], ["objects"]),
    ("molmoact2", '<boxes coords="1 1 1 2 3 4 2 5 6 7 8">mass</boxes>', P + Q, ["mass"] * 2),
    # Kosmos-2.5: transformers' own integration test
    (
        "kosmos-2.5",
        "<bbox><x_53><y_573><x_69><y_606></bbox>1\n<bbox><x_79><y_573><x_464><y_611></bbox>[REG] BLACK SAKURA\n",
        [53, 573, 69, 606, 79, 573, 464, 611],
        ["1", "[REG] BLACK SAKURA"],
    ),
    # words in brackets belong to the label
    ("qwen2-vl", "pleural effusion (left)(1,2),(3,4)", P, ["pleural effusion (left)"]),
    ("internvl", "effusion (left)[[1,2,3,4]]", P, ["effusion (left)"]),
    ("paligemma", "<loc0002><loc0001><loc0004><loc0003> effusion (left) ; ", P, ["effusion (left)"]),
    # "and" is no label; a shared one stands before it
    ("ferret", "nodules [1, 2, 3, 4] and [5, 6, 7, 8].", P + Q, ["nodules", "nodules"]),
    ("ferret", "nodules [1, 2, 3, 4], and [5, 6, 7, 8] & [1, 2, 3, 4]", P + Q + P, ["nodules"] * 3),
    # a bare box is no label
    ("minicpm-v", "<box>1 2 3 4</box>", P, [None]),
    # LaTeX
    ("radvlm", r"\[0.1, 0.2, 0.3, 0.4\]", A, [None]),
    ("ferret", r"mass \left[1, 2, 3, 4\right]", P, [r"mass \left"]),
    ("internvl", r"\boxed{[1, 2, 3, 4]}", P, [None]),
    # box tags lost, the label's kept; all that there is stands in the label
    ("maira-2", "<obj>mass<x1><y2><x3><y4></obj>", P, ["mass"]),
    ("internvl", "<ref>mass [[1, 2, 3, 4]]</ref><box>none</box>", P, ["mass"]),
    # cannot be told from a box, so it counts as one
    ("radvlm", "At [0, 0, 0, 0].", [0, 0, 0, 0], [None]),
]

REJECTS = [
    ("answer-list", "<answer>[0.1,0.2,0.3]</answer>", [], {"wrong_count": 1}),
    ("answer-list", "<answer>[0.1,0.2,0.3,0.4,0.5],[0.5,0.6,0.7,0.8]</answer>", B, {"wrong_count": 1}),
    ("answer-list", "<answer>[0.1,0.2,0.3],[0.1,0.2,0.3,0.4,0.5]</answer>", [], {"wrong_count": 2}),
    ("answer-list", "<answer>[x1,y1,x2,y2]</answer>", [], {"placeholder": 1}),
    ("answer-list", "<answer>[nan,0.2,0.3,0.4],[0.5,0.6,0.7,0.8]</answer>", B, {"not_finite": 1}),
    ("answer-list", "<answer>[0.1,,0.3,0.4]</answer>", [], {"missing_number": 1}),
    ("answer-list", "<answer>[0.1,0.2)</answer>", [], {"point": 1}),
    # cut off inside closed tags: broken, not truncated
    ("answer-list", "<answer>[0.1,0.2,0.3,0.4</answer>", [], {"unclosed": 1}),
    ("answer-list", "<answer>[1,2,3," + "9" * 100_000 + "]</answer>", [], {"number_too_large": 1}),
    ("answer-list", "<answer>[1,2],[3,4]</answer>", [], {"point": 2}),
    ("answer-list", "<answer>" + "[1,2,3,4]," * (MAX_BOXES + 5), P * MAX_BOXES, {"too_many_boxes": 1}),
    # an outer list that was abandoned
    ("answer-list", "[0.7,[0.1,0.2,0.3,0.4]]", A, {"unclosed": 1}),
    # four corner points are a quadrilateral, not two boxes
    ("qwen2-vl", "<|quad_start|>(1,2),(3,4),(5,6),(7,8)<|quad_end|>", [], {"quad": 1}),
    ("qwen2-vl", "click(start_box='<|box_start|>(300,70)<|box_end|>')", [], {"point": 1}),
    ("qwen2-vl", "(1,2),(3,4),(5,6)", [], {"wrong_count": 1}),
    ("qwen2-vl", "(x1,y1),(x2,y2)", [], {"placeholder": 1}),
    # two points, nothing around them
    ("internvl", "[1,2], [3,4]", [], {"point": 2}),
    # the list is abandoned for a new label
    ("deepseek-vl2", "<|ref|>a<|/ref|><|det|>[[110, <|ref|>b<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>", P, {"unclosed": 1}),
    # eight tokens: a quadrilateral's corners in turn, not two boxes
    ("florence-2", "<s><loc_200><loc_100><loc_300><loc_80><loc_310><loc_140><loc_210><loc_160></s>", [], {"quad": 1}),
    ("florence-2", "<loc_10><loc_10><loc_50><loc_10><loc_50><loc_60><loc_10><loc_60>", [], {"quad": 1}),
    ("florence-2", "car<poly><loc_1><loc_2><loc_3><loc_4></poly>", [], {"quad": 1}),
    # three tokens before the end token, five
    ("florence-2", "mass<loc_1><loc_2><loc_3></s>", [], {"unclosed": 1}),
    ("florence-2", "mass<loc_1><loc_2><loc_3><loc_4><loc_5> heart", [], {"wrong_count": 1}),
    # no token of the vocabulary; the far edge is let pass
    ("florence-2", "mass<loc_12345><loc_2><loc_3><loc_4></s>", [], {"number_too_large": 1}),
    ("paligemma", "<loc0002><loc0001><loc1024><loc1024> mass", [1, 2, 1024, 1024], {}),
    ("kosmos-2", "<object><patch_index_0044></object>", [], {"wrong_count": 1}),
    ("kosmos-2", "<object><patch_index_99999><patch_index_0863></object>", [], {"number_too_large": 1}),
    ("kosmos-2", "<object><patch_index_0044><patch_index_1024></object>", [], {"number_too_large": 1}),
    # a point in box tags, points in tags of their own
    ("locate-anything", "<box><900><40></box>", [], {"point": 1}),
    ("minicpm-v", "<point>12 30</point>", [], {"point": 1}),
    ("glm-4v", '<points x1="700" y1="300"></points>', [], {"point": 1}),
    ("perceptron", '<point mention="mass"> (1,2) </point>', [], {"point": 1}),
    ("perceptron", '<point_box mention="mass"> (1,2) </point_box>', [], {"point": 1}),
    ("molmoact2", '<boxes coords="1 1 160 230 480">mass</boxes>', [], {"wrong_count": 1}),
    ("seed-vl", "<bbox>163 494 738</bbox>", [], {"wrong_count": 1}),
    ("chexagent", "<ref>Label</ref><box>(x1,y1),(x2,y2)</box>", [], {"placeholder": 1}),
    ("minicpm-v", "<box>1 2 3</box>", [], {"wrong_count": 1}),
    # brackets are looked at up to a number, whatever is in them
    ("radvlm", "[words] " * (MAX_GROUPS + 1), [], {"too_long": 1}),
]

TRUNCATED = [
    ("answer-list", "<answer>[0.1,0.2,0.3,0.4],[0.5,0.6,0.7", A),
    ("answer-list", "<answer>[0.1,0.2,0.3,0.4],[0.5,0.6,0.7,0.8", A),
    ("answer-list", "<answer>[0.1,0.2,0.3,0.4],", A),
    ("answer-list", "<answer>", []),
    # complete, then thinking anew until the token limit
    ("answer-list", "[0.1,0.2,0.3,0.4]<think>but", A),
    ("answer-list", "<think>[0.1,0.2,0.3,0.4]", []),
    ("qwen2-vl", "<|object_ref_start|>a<|object_ref_end|><|box_start|>(1,2),(3,4)<|box_end|><|box_start|>", P),
    ("qwen2-vl", "(1,2),(3,4),(5,6),", []),
    ("qwen2-vl", "<|box_start|>(1,2),(3", []),
    # tokens stripped, cut off in the first number of a corner point
    ("qwen2-vl", "(1,2),(3", []),
    ("qwen2-vl", "(1,2),(3,4)(5", P),
    ("radvlm", "The mass is located at [0.1, 0.2, 0.3, 0.4] and [0.5, 0.", A),
    ("radvlm", "The mass is located at [", []),
    ("paligemma", "<loc0002><loc0001><loc0004><loc0003> mass ; <loc0006><loc00", P),
    ("paligemma", "<loc0002><loc0001><loc0004><loc0003> mass ; <loc0006><loc0005><lo", P),
    ("rex-omni", "mass<1><2><3><4>,<5><6><7><8", P),
    ("kosmos-2", "<phrase>a</phrase><object><patch_index_0044><patch", []),
    ("internvl", "<ref>mass</ref><box>[[1, 2, 3, 4], [5, 6", P),
    ("internvl", "<ref>mass</ref><bo", []),
    ("perceptron", '<point_box mention="mass"> (1,2) (3,4) </point_box> <point_box mention="nod', P),
    ("perceptron", '<point_box mention="mass"> (1,2) (3', []),
    ("molmoact2", '<boxes coords="1 1 1 2 3 4">mass</boxes><boxes coords="1 1 5', P),
    ("seed-vl", "<bbox>1 2 3 4</bbox><bbox>5 6", P),
    ("kosmos-2.5", "<bbox><x_1><y_2><x_3><y_4></bbox>mass\n<bbox><x_5><y_", P),
    # in a label that begins like a negative
    ("deepseek-vl2", "<|ref|>no", []),
    ("internvl", "<ref>no", []),
    ("kosmos-2", "<phrase>normal", []),
    ("maira-2", "<obj>no", []),
    ("internvl", "<ref>mass</ref><box>[[1, 2, 3, 4]]</box><ref>no", P),
    ("minicpm-v", "<ref>mass</ref><box>1 2 3 4", []),
    # complete boxes stay, whatever the next one broke off in
    ("qwen2-vl", "mass(1,2),(3,4)(5,6", P),
    ("qwen2-vl", "mass(1,2),(3,4)(5,6)", P),
    ("univg-r1", "<answer>(1,2),(3,4), (5,6", P),
    ("cogvlm", "[[1,2,3,4;5,6,7", P),
    ("shikra", "a[0.1,0.2,0.3,0.4;0.5,0.6", A),
    ("florence-2", "mass<loc_1><loc_2><loc_3><loc_4><loc_5>", P),
    ("maira-2", "<x1><y2><x3><y4><x5>", P),
    # four points joined alike are a quadrilateral, also where it breaks off
    ("qwen2-vl", "(1,2),(3,4),(5,6", []),
]

EMPTY = [
    ("answer-list", "<answer></answer>"),
    ("answer-list", "<think>hm</think>\n<answer>\n</answer>"),
    ("answer-list", "<answer>[]</answer>"),
    ("answer-list", "<answer>None</answer>"),
    ("answer-list", "<answer>No Objects"),
    # its own end token says that the label is whole
    ("deepseek-vl2", "<|ref|>none<｜end▁of▁sentence｜>"),
    # words that lead to the answer
    ("answer-list", "Based on the image, my final output: <answer></answer>"),
    ("vlm-r1", "The lungs are clear, so I will return an empty list. <answer>[]</answer>"),
    ("qwen2-vl", "None"),
    ("qwen2-vl", "<|box_start|>None<|box_end|>"),
    ("radvlm", "No nodules are visible on this image."),
    ("locate-anything", "<box>none</box>"),
    ("locate-anything", "<ref>mass</ref><box>None</box>"),
    ("rex-omni", "<|object_ref_start|>mass<|object_ref_end|><|box_start|>None<|box_end|>"),
    ("glm-4v", "<|begin_of_box|><|end_of_box|>"),
    ("chexagent-2", "No consolidation detected."),
    # a project's own sentinel under InternVL
    ("internvl", "<ref>mass</ref><box>[[0, 0, 0, 0]]</box>"),
    # a blank answer is the trained negative of these two
    ("paligemma", ""),
    ("florence-2", "</s><s></s>"),
    # a finding without a box
    ("maira-2", "<obj>mass</obj>"),
    # a statement in JSON, whatever the family
    ("internvl", '{"finding": false}'),
    ("paligemma", '{"bbox_2d": null}'),
    # far more blanks than any answer has
    ("radvlm", "[]" + " " * 200_000),
]

UNPARSEABLE = [
    ("answer-list", "", "no_answer"),
    ("answer-list", "<think>[0.1,0.2,0.3,0.4]</think>", "no_answer"),
    ("answer-list", "<answer>here</answer>", "nothing_stated"),
    ("answer-list", "Write <answer>[] if there is nothing</answer>", "echoed_prompt"),
    # the tokens that held the coordinates were stripped
    ("qwen2-vl", "cardoorwheel", "nothing_stated"),
    ("radvlm", "There is a mass in the left lung.", "nothing_stated"),
    ("florence-2", "cardoorwheel", "nothing_stated"),
    # GLM boxes any final answer
    ("glm-4v", "<|begin_of_box|>a mass<|end_of_box|>", "nothing_stated"),
    # four ribs
    ("ferret", "Fractures of ribs (4, 5, 6, 7).", "nothing_stated"),
    # only its own tag names a finding
    ("maira-2", "<ref>mass</ref>", "nothing_stated"),
    # a blank after thinking is no trained negative
    ("paligemma", "mass</think>", "no_answer"),
    ("florence-2", "<think>mass</think>", "no_answer"),
    # an echoed instruction whose tags are blank, or hold what it quotes
    ("answer-list", "Output the answer in <answer> </answer> tags. If none return 'No Objects'.", "echoed_prompt"),
    ("visual-rft", "If there is no object, output <answer>No Objects</answer>.", "echoed_prompt"),
    ("vlm-r1", "If no finding, return <answer>[]</answer>", "echoed_prompt"),
    (
        "vlm-r1",
        "Output the thinking process in <think> </think> and the answer in <answer> </answer>.",
        "echoed_prompt",
    ),
    # region notation without numbers
    ("chexagent-2", "[Lung: left upper] **mass**", "nothing_stated"),
    ("qwen-vl", "", "no_answer"),
]


@pytest.mark.parametrize(("name", "text", "coords", "labels"), BOXES)
def test_boxes(name, text, coords, labels):
    raw = read_boxes(text, get_box_format(name))
    assert (raw.coords, raw.labels, raw.status) == (coords, labels, "boxes")


@pytest.mark.parametrize(("name", "text", "coords", "rejected"), REJECTS)
def test_rejects(name, text, coords, rejected):
    raw = read_boxes(text, get_box_format(name))
    assert (raw.coords, raw.rejected) == (coords, rejected)
    assert raw.status == ("boxes" if coords else "unparseable")


@pytest.mark.parametrize(("name", "text", "coords"), TRUNCATED)
def test_truncated(name, text, coords):
    raw = read_boxes(text, get_box_format(name))
    assert (raw.coords, raw.status) == (coords, "truncated")


@pytest.mark.parametrize(("name", "text"), EMPTY)
def test_empty(name, text):
    assert read_boxes(text, get_box_format(name)) == RawBoxes([], [], [], "empty", {})


@pytest.mark.parametrize(("name", "text", "reason"), UNPARSEABLE)
def test_unparseable(name, text, reason):
    assert read_boxes(text, get_box_format(name)) == RawBoxes([], [], [], "unparseable", {reason: 1})


@pytest.mark.parametrize(
    ("read", "name", "text"),
    [
        (read_plain_lists, "answer-list", "<answer>[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]</answer>"),
        (
            read_plain_items,
            "qwen2-vl",
            "<|object_ref_start|>a<|object_ref_end|><|box_start|>(1,2),(3,4)<|box_end|>",
        ),
        (read_plain_sentences, "radvlm", "The mass is located at [0.1, 0.2, 0.3, 0.4] and [0.5, 0.6, 0.7, 0.8]."),
    ],
)
def test_plain_text_takes_the_quick_way(read, name, text):
    assert read(text, get_box_format(name)) is not None
