"""What counts as "nothing to mark" in words, and what only sounds like it."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.labels import _file, vocabulary
from grounding_rewards.parsing.prose import (
    _FORMS,
    _MOVES,
    _NEXT_STATE,
    _SAID,
    MAX_STATEMENT,
    echoes_prompt,
    states_nothing,
)
from grounding_rewards.parsing.radiology_words import PHRASES, WORDS
from tests.parsing import adversarial

NEGATIVES = [
    # words that published prompts ask for
    "none",
    "None.",
    "NONE",
    "null",
    "n/a",
    "No Objects",
    "no object detected",
    "No findings.",
    "no boxes",
    "0 findings",
    "Nothing to mark.",
    "There is nothing to mark on this image.",
    "Nothing of note.",
    "No abnormality to report.",
    "There are no findings to be marked.",
    "Normal.",
    "Clear.",
    "Unremarkable.",
    "Negative.",
    "Within normal limits.",
    "WNL",
    "Not detected.",
    "None seen.",
    "There are none.",
    # the same, wrapped
    "```json\nnull\n```",
    "```json\nnone\n```",
    "json\nnone",
    "**No findings.**",
    "__None__",
    "### None",
    "> none",
    "['No Objects']",
    '["No Objects"]',
    '{"result": "none"}',
    "'finding': 'none'",
    "<box>none</box>",
    '"none"',
    "`none`",
    "\\boxed{none}",
    "$\\boxed{\\text{none}}$",
    "<answer>none</answer>",
    "<|box_start|>None<|box_end|>",
    # behind a label
    "Answer: none",
    "Output: none",
    "Findings: none",
    "**Findings:** None",
    "The answer is: none",
    "The final answer is None.",
    "Bounding boxes: none",
    "Impression: no acute finding.",
    "IMPRESSION: 1. No acute process",
    "Impression: Normal.",
    "### Findings\n- No effusion\n### Impression\nNormal",
    # a finding behind "no": listed, by its ending, or unknown but in CheXagent-2's form
    "No consolidation detected.",
    "No pneumothorax",
    "No bronchiolitis.",
    "No spiculated nodule.",
    "No cardiomegaly.",
    "No Chilaiditi syndrome detected.",
    "No ILD detected.",
    "No Enlarged PA detected.",
    "No Clavicle fracture detected.",
    "No free air.",
    "No radiopaque foreign body.",
    "No fibrotic changes.",
    "No enlarged lymph nodes.",
    "No rib fracture.",
    # frames in front
    "There is no pneumothorax.",
    "There's no effusion.",
    "There aren't any abnormalities.",
    "There has been no collapse.",
    "There do not appear to be any nodules.",
    "It appears that there are no lesions.",
    "This image shows no nodule.",
    "The image does not show any abnormality.",
    "The lungs show no infiltrate.",
    "The image contains no mass.",
    "I can't find any lesion here.",
    "I couldn’t detect any abnormality.",
    "I do not see anything abnormal.",
    "I am unable to identify any lesion.",
    "We see no fracture.",
    "I found nothing.",
    "I have not found any abnormality.",
    "Based on the provided chest X-ray, there are no visible abnormalities.",
    "In this image, no nodules are present.",
    "After careful review, I find no abnormalities.",
    "Overall, normal.",
    "No, the lungs are clear.",
    # a finding in front, denied behind
    "Pleural effusion is not seen.",
    "A pneumothorax is not identified.",
    "No effusion can be seen.",
    "Effusion not seen.",
    "The pneumothorax cannot be seen.",
    "Effusion is absent.",
    "The requested finding is not present in this image.",
    "Pneumothorax: absent. Effusion: none.",
    "Pleural effusion: not seen",
    "Consolidation: negative",
    "Pneumonia: no.",
    # other negations
    "Negative for fracture.",
    "The lungs are free of focal opacity.",
    "Neither pneumothorax nor effusion is seen.",
    "The image seems to be clear of any lesions.",
    "Absence of effusion.",
    "Radiograph without abnormality.",
    # scope over lists and "or"
    "No consolidation, large effusion, or pneumothorax.",
    "No pneumonia, effusion, edema or collapse.",
    "No consolidation, effusion and pneumothorax.",
    "No hilar or mediastinal lymphadenopathy.",
    "No consolidation or other acute abnormality.",
    "No nodule/mass.",
    "No heart or lung abnormality.",
    # and over what a finding would mean or be
    "No focal opacity to suggest pneumonia.",
    "No opacities concerning for infection.",
    "No evidence of suspicious lesions.",
    # normal statements
    "The lungs are clear.",
    "Clear lungs, normal heart size.",
    "Heart size is within normal limits.",
    "Normal chest X-ray.",
    "The heart is normal in size and the lungs are clear.",
    "The heart, lungs and mediastinum are normal.",
    "Heart is not enlarged.",
    "The trachea is in the midline.",
    "The lungs are well expanded and clear.",
    "CXR normal",
    "Bony structures appear normal.",
    "Costophrenic angles are sharp.",
    "The study shows a clean bill of health.",
    "Stable normal chest.",
    "Unremarkable chest radiograph.",
    "Lungs: clear. Heart: normal. Bones: no fracture.",
    "the lungs are clear the cardiomediastinal silhouette is within normal limits",
    # several clauses and sentences
    "No effusion, lungs clear.",
    "No effusion and the heart is normal.",
    "The lungs are clear with no effusion.",
    "No pneumothorax is identified, and the lungs are clear.",
    "No pneumothorax. No effusion.\nThe heart is normal.",
    # places in a list
    "No intracranial bleed, no mass effect, no shift of the midline.",
    "No nodule in the upper, middle or lower zones.",
    "No abnormality in the lungs, the pleura, the heart, or the visible skeleton.",
    "No effusion is seen on the left or on the right.",
    # what was looked for, and how
    "Pneumonia was looked for and was not found.",
    "My analysis finds no aneurysm.",
    "I reviewed the image and did not come across any lesion.",
    "You asked for cardiomegaly: the heart is normal.",
    "The requested finding, atelectasis, is absent.",
    "I was asked to mark the pneumothorax, but this image has none.",
    "All zones were inspected and none contains a nodule.",
    "There is no sign that the tooth is infected.",
    "Hand, AP view, no fracture.",
    # unknown words behind a negation and beside what is called normal do no harm
    "No fracture line crosses the cortex of the zarb.",
    "No lymph nodes bulge from it.",
    "No opacity obscures the heart borders.",
    "The domes describe smooth arcs, and no fluid is seen.",
    "No zarb whatsoever, be it large or small.",
    "Pulmonary vessels are neither congested nor pruned.",
    "The bony cage shows neither old nor recent fractures.",
    "No nodule larger than 3 mm.",
    "No evidence of any lesion that might be malignant.",
    # one clause for several things
    "Atelectasis, consolidation, effusion: all absent.",
    "None of atelectasis, consolidation or effusion is present.",
    "Every rib was traced and found intact.",
    "The X-ray is free of rib fractures and of pneumothorax.",
    "There is, in my opinion, no abnormality on this radiograph.",
    "In neither lung is there an infiltrate.",
    # what was asked, suspected and labelled
    "As for the pneumothorax, I could not find one.",
    "With respect to consolidation, the image is negative.",
    "Suspected rib fracture: not confirmed.",
    "The suspicion of a pneumothorax is not confirmed.",
    "Question: nodule? Answer: not seen.",
    "Verdict: normal.",
    "Patient with cough: no pneumonia.",
    "Pneumonia has been ruled out.",
    "Let me go through the image. The lungs are clear.",
    "I leave the list empty, since no lesion is visible.",
    # framing beside the statement
    "Thank you for the image. Lungs clear. Routine screening is recommended.",
    "There are no abnormalities, so no bounding box is provided.",
    "The duct measures 4 mm, which is normal, and has no stone.",
    "* No effusion\n* No mass",
    "1. **Lungs:** Clear.\n2. **Heart:** The heart is normal.",
    "**Lungs:**\n- Clear",
    "No nodule in the left lung and the heart is normal.",
    "Both lungs are clear; the heart is normal.",
    # beyond the chest
    "No fracture of the distal radius.",
    "No fracture of the scaphoid, radius or ulna.",
    "The lumbar spine is normal.",
    "No intracranial hemorrhage, mass effect or midline shift.",
    "No subdural, epidural or subarachnoid blood.",
    "No gallstones and no free fluid.",
    "Neither the radius nor the ulna is broken.",
    "No deep vein thrombosis.",
    "Cervical spine: alignment normal, soft tissues not swollen.",
    "The paranasal sinuses are clear.",
    # British spelling, endings and compounds that no list holds
    "No haemorrhage, oedema or tumour.",
    "No nephrolithiasis.",
    "No periapical lesion.",
    "No compression fracture.",
    "No abnormal uptake.",
    # short answers
    "No detections.",
    "Nil acute.",
    "Fracture - none",
    "Fractures: 0",
    '"pneumonia": []',
    "The output is [].",
    "There are no instances of pneumothorax in this image.",
    "I looked for nodules and found none.",
    "I looked at the lungs. No nodule could be identified, so no box is given.",
    # framing beside a statement
    "PA and lateral views of the chest were obtained. The lungs are clear.",
    "AP view. There is no pneumothorax.",
    # a question that is answered
    "Is there a mass? No.",
    "Nodules? None.",
    # names that no table holds, denied or called normal
    "No Hill-Sachs lesion.",
    "No endoleak, chondrolysis or Segond fracture.",
    "The caudate nuclei are unremarkable.",
    "Nothing suggests tuberculosis.",
    "Absent: pneumothorax, effusion.",
    "As there is no consolidation, I cannot provide coordinates.",
    # parts of the body that are denied what a lesion may have
    "The stifle shows no fractures.",
    "The aorta shows no calcification.",
    "This is a frontal chest radiograph. No abnormality is seen.",
    "No mass, as far as I can tell.",
]
#: What was known before the image may be anything, also a finding.
WITH_HISTORY = [
    "EXAM: Chest X-ray. COMPARISON: None. FINDINGS: Lungs are clear.",
    "The child was referred for suspected aspiration; however, there is no air trapping.",
    "Indication: cough. No pneumonia.",
    "Clinical: known mass. Comparison: CT. The lungs are clear.",
    "Although pneumonia was suspected clinically, the lungs are clear.",
    "Despite the history of trauma, the spine is normal.",
]
CHINESE_NEGATIVES = ["无", "没有", "未发现异常", "未见异常。", "没有发现病变", "图像中未发现明显异常", "**无**"]
OTHERS = [
    "",
    " \n",
    ".",
    "**",
    "{}",
    # a finding
    "Cardiomegaly.",
    "left effusion",
    "There is a left effusion.",
    "Impression: nodule",
    "Effusion: small.",
    "Yes.",
    "No effusion. Answer: yes",
    "The heart is enlarged.",
    "Enlarged heart, no effusion.",
    "Hyperinflated lungs.",
    "The angle is blunted.",
    "Pneumothorax: present.",
    "A pacemaker is seen.",
    "Sternotomy wires are intact.",
    "The lungs are hyperinflated.",
    # an unknown word where something may be asserted
    "No effusion. The patella rides over the trochlea.",
    "No stone, but the ureter is twice its normal width.",
    "The ventricles are ballooned, no bleed.",
    "The right lung is fully zarbed, no effusion.",
    "The cardiac silhouette exceeds normal limits.",
    # what was asked, suspected and labelled, and is there
    "As for the pneumothorax, it is still there.",
    "Regarding effusion, left base. No fracture.",
    "Suspected rib fracture: confirmed. No pneumothorax.",
    "Question: is there a nodule? Answer: yes, one. No effusion.",
    "Patient with pneumonia. No effusion.",
    "Verdict: abnormal. No effusion.",
    "Number of nodules: two. No effusion.",
    "No effusion on the left, trace on the right.",
    "No nodules on the left, three on the right.",
    "It might be normal.",
    # cut off, or an unknown word that leaves something out
    "No erosions, no fracture of the",
    "No erosions, no signs of any",
    "No abnormality barring a cervical bone.",
    "The lungs are normal save the apex.",
    "There is no lung amid the zarb.",
    "The zarb kidney is not seen.",
    "Pneumonia to be ruled out.",
    "To be sure there is no fracture, a CT is needed.",
    "No definite statement.",
    "No sign that the tumour has shrunk.",
    # a bare noun behind a closed negation
    "No effusion, cardiomegaly.",
    "No effusion or pneumothorax, cardiomegaly.",
    "No effusion, cardiomegaly, edema",
    "No effusion, cardiomegaly, no pneumothorax.",
    "No effusion, cardiomegaly, lungs are clear.",
    "No effusion cardiomegaly",
    "Lungs are clear, cardiomegaly.",
    "Lungs clear and effusion.",
    "Normal heart, effusion.",
    "No effusion: cardiomegaly",
    "No effusion - cardiomegaly",
    "No effusion (cardiomegaly)",
    "No effusion; cardiomegaly",
    "No effusion\ncardiomegaly",
    "No effusion + cardiomegaly",
    "No effusion → cardiomegaly",
    "No effusion 但是有肿块",
    "Effusion, pneumothorax absent.",
    # a place without a finding may be that of the finding before
    "No pleural effusion on the right. Present on the left.",
    "No pneumothorax on the left; noted on the right.",
    # behind a contrast an article asserts, whatever the noun and the verb
    "No consolidation; however, a 14 mm rounded density projects over the left sixth rib.",
    "No effusion, but a density projects over the rib.",
    "No effusion, though one zarb.",
    "A rounded density over the left lower zone.",
    "Round shadow in the femur, no fracture.",
    "Not seen on the lateral view but on the other.",
    # a measure may be a finding
    "Aorta 5 cm, no dissection.",
    "Pneumonia was looked for and was found, lungs clear.",
    "You asked for effusion: the left base.",
    "The patient presented with a mass. No fracture.",
    "Thank you for the image with the fracture. No effusion.",
    "No follow-up is needed.",
    "Routine screening is recommended.",
    "There is no sign that the effusion is smaller.",
    "Sacroiliac joints fused.",
    "No effusion. In the left lower lobe.",
    "In the left lower lobe. No effusion.",
    # "and a" begins a new statement, also in a list
    "No effusion, consolidation, and a nodule in the right lobe.",
    "No fracture of the radius, ulna or a dislocated elbow.",
    # adjectives that claim a finding
    "Fibrotic lungs, no effusion.",
    "Cirrhotic liver. No ascites.",
    "Osteopenic bones, no fracture.",
    "The kidneys are polycystic. No stones.",
    # beyond the chest
    "The scaphoid is not intact.",
    "No fracture of the tibia, fibular fracture present.",
    "No stones in the right kidney, several in the left.",
    "ACL intact, PCL torn.",
    "The fracture is aligned.",
    "Fracture without displacement.",
    "The plate is intact.",
    "There is a central venous line.",
    "Full bladder, no stone.",
    "No spleen is seen.",
    "Although a nodule is suspected, no effusion.",
    "I looked for nodules.",
    # a new statement behind "and", "with", "but"
    "No effusion and a mass.",
    "No effusion and cardiomegaly.",
    "No effusion and cardiomegaly is present.",
    "No effusion and large heart, normal lungs.",
    "No effusion and large mass.",
    "No pneumothorax and bibasilar atelectasis.",
    "No, a mass.",
    "No effusion with mass.",
    "The lungs are clear with a nodule.",
    "No effusion, but a mass.",
    "Cardiomegaly, no effusion.",
    "No effusion, mild cardiomegaly and edema",
    "There is no effusion, and there is a mass.",
    "No small nodule, a large one.",
    "Large heart, normal lungs.",
    "The lungs are clear and the heart is enlarged.",
    "Normal chest except a nodule.",
    "Right lung clear, left lung opacified.",
    "The right lung is clear, the left lung is not.",
    "Lungs: clear. Heart: large.",
    # what is missing, or is not normal, is healthy
    "The costophrenic angle is not visible.",
    "The left hemidiaphragm is not seen.",
    "No lung markings.",
    "No heart seen.",
    "Absence of the left lung.",
    "No air in the right lung.",
    "The lungs are not clear.",
    "Not a normal chest.",
    "No lobe is spared.",
    "None of the lung fields are clear.",
    "No part of the lung is free of disease.",
    "No clear lung.",
    "Neither lung is normal.",
    "There is no normal lung left.",
    "Nothing is normal.",
    "No evidence of a normal heart.",
    # a change
    "No change in the left effusion.",
    "No interval change.",
    "No improvement.",
    "The effusion has not changed.",
    "The effusion is no longer seen.",
    "No resolution of the edema.",
    "Stable.",
    "Heart size is stable.",
    "No change detected.",
    # a rest, another image
    "No other masses.",
    "No new consolidation.",
    "No additional nodules.",
    "No more than two nodules.",
    "No prior images.",
    "The nodule was not seen before.",
    "The mass seen previously is not seen.",
    "No effusion on the prior image.",
    # doubt
    "Cannot rule out pneumonia.",
    "Pneumonia cannot be excluded.",
    "Effusion is not excluded.",
    "May represent edema.",
    "Possible nodule.",
    "Probably none.",
    "None, probably.",
    "No effusion?",
    "Not sure.",
    "There could be no effusion.",
    "It is unclear whether there is no mass.",
    "I don't think there is no nodule.",
    "Likely normal",
    # names that no table holds may be findings, and what they lack is not all there is
    "Zenker's diverticulum, no aspiration.",
    "A zarb, lungs clear.",
    "The zarb shows no calcification.",
    "The zarb is not displaced.",
    "The zarb has a smooth border.",
    "Smooth round zarb in the left lung.",
    "Zarb without displacement.",
    "The zarb is top normal.",
    # behind an article or a preposition stands what is there
    "No callus at the fracture site.",
    "No calcification of the mass.",
    "No effusion accompanies the hilar mass.",
    "All but one of the ribs are intact.",
    "None of the nodules is calcified.",
    "The lungs are asymmetrically inflated.",
    # emphasis, and negations that assert
    "It is clear that there is a mass.",
    "Clear evidence of a mass.",
    "Clear effusion.",
    "No doubt, effusion.",
    "No one missed the effusion.",
    "No matter the effusion.",
    "There is not only effusion.",
    "Nothing but effusion.",
    "The effusion is not large.",
    "The nodule is not fully seen.",
    "The nodule is not well seen.",
    "Not negative for nodules.",
    # half a sentence
    "There is no",
    "No evidence of",
    "The chest X-ray shows",
    "Findings:",
    "The heart is",
    "no sign",
    "No large",
    # nothing said about findings
    "PA and lateral views of the chest were obtained.",
    "This is a chest X-ray.",
    "Based on the image,",
    "The image is clear.",
    "The lungs and the heart.",
    "cardoorwheel",
    "I am a language model.",
    "OK",
    "Comparison: none.",
    # about the question instead of the image
    "No idea.",
    "No comment",
    "No image was provided.",
    "I can't see any image",
    "There is no way to know",
    "No problem!",
    "None of the above",
    "nothing comes to mind",
    "File not found",
    "No answer found",
    "I don't have an answer",
    "Without seeing the image I cannot tell.",
    "Mostly clear lungs.",
    "The lungs are otherwise clear.",
    "No cats.",
    # a generation that got stuck
    "No ObjectsOutputOutputOutputOutput",
    "No Objects Output Output",
    "['No ObjectsOutputOutput",
    "no no no no",
    "No Objects. No Objects. No Objects. No Objects.",
    "no objects no objects no objects",
    "No " + "a" * 40 + " detected.",
    # a report, not a statement
    "No effusion. The lungs are clear. " * 100,
    # Chinese
    "有肿块",
    "没有发现气胸，但有胸腔积液",
    "不正常",
    "无法判断",
    "没有图像",
    "不能排除肺炎",
    "未见好转",
]
ECHOES = [
    "If there are no findings, return 'No Objects'.",
    'return "No Objects"',
    "Output None if no lesion is visible.",
    "Output the bounding boxes in JSON format.",
    "Please provide the bounding boxes in the following format: [x1, y1, x2, y2]. No findings: [].",
    "Respond with [] when nothing is found.",
    "Answer with 'none' otherwise.",
    "Locate all lesions. None",
    "You should use none when there is no box.",
    "I would return an empty list because the lungs are clear.",
]
# Answers without a box that are no instructions, with words that instructions use as well.
NO_ECHOES = [
    *NEGATIVES,
    "I could not locate any lesion.",
    "The provided image shows a mass.",
    "The study found an effusion.",
]


@pytest.mark.parametrize("answer", NEGATIVES + WITH_HISTORY + CHINESE_NEGATIVES)
def test_states_nothing(answer):
    assert states_nothing(answer)


@pytest.mark.parametrize("answer", OTHERS)
def test_states_something_else(answer):
    assert not states_nothing(answer)


@pytest.mark.parametrize("answer", ECHOES)
def test_echoed_prompt_states_nothing_of_its_own(answer):
    assert echoes_prompt(answer)
    assert not states_nothing(answer)


@pytest.mark.parametrize("answer", NO_ECHOES)
def test_answers_are_not_taken_for_instructions(answer):
    assert not echoes_prompt(answer)


def held_out(name):
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    return [line.replace("\\n", "\n") for line in lines]


def test_held_out():
    # Written down apart from the tables; how far the rules carry beyond the rows above.
    negatives, others = held_out("heldout_negatives.txt"), held_out("heldout_others.txt")
    missed = [answer for answer in negatives if not states_nothing(answer)]
    passing = [answer for answer in others if states_nothing(answer)]
    assert len(missed) <= 0.03 * len(negatives), missed
    assert len(passing) <= 0.01 * len(others), passing


@pytest.mark.parametrize(
    "path", sorted(Path(__file__).with_name("sentences").glob("development/*.tsv")), ids=lambda path: path.stem
)
def test_labelled_sentences(path):
    # Written and labelled apart from the rules, half of them beyond the chest: LABEL<TAB>REGION<TAB>TEXT. Lists that
    # were not seen in development are only reported, in docs/negatives.md.
    sentences = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    judged = [(label, states_nothing(text.replace("\\n", "\n")), text) for label, _, text in sentences]
    missed = [text for label, negative, text in judged if label == "negative" and not negative]
    passing = [text for label, negative, text in judged if label == "finding" and negative]
    assert len(missed) <= 0.03 * sum(label == "negative" for label, *_ in judged), missed
    assert len(passing) <= 0.01 * sum(label == "finding" for label, *_ in judged), passing


#: Nouns that no table holds.
invented = st.from_regex(r"z[aou]r[bkt]u[mb]", fullmatch=True)
#: Negatives about one finding, two of them, or a part of the body.
FRAMES = [
    "No {0}.",
    "There is no {0} in the left hip.",
    "No {0}, {1} or fracture.",
    "No effusion, {0}, or {1}.",
    "Without evidence of {0}.",
    "I cannot see any {0}.",
    "Acute {0} is not seen.",
    "{0}: none.",
    "Free of {0} or {1}.",
    "The chest shows no {0}.",
    "No {0} fracture of the wrist.",
    "Nothing to suggest {0}.",
    "The {0} is normal.",
    "Normal {0}, no effusion.",
    "{0} and {1} are unremarkable.",
    "No fracture of the {0}.",
]
#: The same nouns asserted, alone or beside a negative.
ASSERTED = [
    "{0}.",
    "There is a {0}.",
    "Left {0}.",
    "The lungs show a {0}.",
    "No effusion, {0}.",
    "No effusion and a {0}.",
    "No effusion. {0} in the left hip.",
    "{0}, no effusion.",
    "{0} with no effusion.",
    "{0} without {1}.",
    "The lungs are clear with a {0}.",
    "The {0} is not calcified.",
    "No change in the {0}.",
    "Possible {0}.",
    "No {0} but {1}.",
    "Clear lungs except for {0}.",
]


@given(nouns=st.tuples(invented, invented), frame=st.sampled_from(FRAMES))
def test_an_invented_noun_is_denied_like_any_other(nouns, frame):
    # the same noun twice would be a generation that got stuck
    if len(set(nouns)) == 2:
        assert states_nothing(frame.format(*nouns))


@given(nouns=st.tuples(invented, invented), frame=st.sampled_from(ASSERTED))
def test_an_invented_noun_that_is_asserted_never_passes(nouns, frame):
    assert not states_nothing(frame.format(*nouns))


@pytest.mark.parametrize("known", ["nodule", "fracture", "effusion"])
@given(noun=invented, answer=st.sampled_from(NEGATIVES))
def test_a_known_finding_in_a_negation_may_be_any_other(known, noun, answer):
    assert states_nothing(re.sub(rf"(?<=\b[Nn]o ){known}\b", noun, answer))


ANATOMY = _file()["anatomy"]


def test_every_finding_of_the_vocabulary_can_be_denied():
    # The rest are anatomy by their words (an azygos lobe, a heart valve), a change or a rest (other opacity).
    names = [name for name in vocabulary() if name not in ANATOMY and "normal" not in name and "no " not in name]
    missed = [name for name in names if not states_nothing(f"No {name}.")]
    assert len(missed) <= 0.15 * len(names), missed
    assert not [name for name in names if states_nothing(f"There is {name}.") or states_nothing(f"{name}.")]


def test_anatomy_of_the_vocabulary_can_be_called_normal():
    assert not [name for name in ANATOMY if not states_nothing(f"The {name} is normal.")]
    assert not [name for name in ANATOMY if states_nothing(f"The {name}.") or states_nothing(f"No {name}.")]


negatives = st.sampled_from(NEGATIVES)
marks = st.sampled_from(["", " ", "\n", "\t \n", "**", "_", "`", '"', "'", "\n\n"])


@given(answer=negatives, before=marks, after=marks, case=st.sampled_from([str, str.upper, str.lower, str.title]))
def test_case_blanks_and_emphasis_around_do_not_matter(answer, before, after, case):
    # title("can't") is "Can'T"
    assert states_nothing(before + case(answer) + after)


@given(
    answer=negatives,
    finding=st.sampled_from(["There is a left effusion.", "Cardiomegaly.", "Possible mass.", "No change."]),
)
@pytest.mark.parametrize("between", [" ", ". ", "\n"])
def test_a_negative_with_a_finding_is_none(between, answer, finding):
    assert not states_nothing(answer + between + finding)
    assert not states_nothing(finding + between + answer)


@given(first=negatives, second=negatives)
def test_two_negatives_are_one(first, second):
    assert states_nothing(f"{first}\n{second}")


@given(answer=negatives, word=st.sampled_from(["except", "possibly", "unless", "+", "但"]), data=st.data())
def test_a_word_that_turns_it_around_anywhere_makes_it_none(answer, word, data):
    blanks = [match.start() for match in re.finditer(" ", answer)]
    if blanks:
        at = data.draw(st.sampled_from(blanks))
        assert not states_nothing(f"{answer[:at]} {word} {answer[at:]}")


@given(words=st.lists(st.sampled_from(sorted(word for words in WORDS.values() for word in words.split())), max_size=12))
def test_a_sentence_without_negation_and_normality_is_none(words):
    said = {name for name, members in WORDS.items() if set(members.split()) & set(words)}
    text = " ".join(words)
    said |= {name for name, phrase in PHRASES.items() if re.search(phrase, text, re.VERBOSE)}  # "abdomen central"
    if not said & {"no", "none", "nothing", "not", "absent", "excluded", "normal", "form"}:
        assert not states_nothing(text)


@pytest.mark.parametrize("opening", ["", "No ", "The chest radiograph "])
def test_any_length_is_read_at_once(opening):
    for text in adversarial.texts(opening, 1_000_000).values():
        assert not states_nothing(text)
        assert isinstance(states_nothing(text[:MAX_STATEMENT]), bool)
        assert isinstance(echoes_prompt(text), bool)


def test_the_tables_fit_together():
    members = [word for words in WORDS.values() for word in words.split()]
    assert len(members) == len(set(members))  # one class each
    assert {name for _, name in _NEXT_STATE} <= set(WORDS) | set(PHRASES) | {"num", "measure", *_FORMS, "word"}
    assert {*_NEXT_STATE.values(), "start"} == set(_MOVES)  # each state is reached, and each move leads to a state
    ends = [state for states in _SAID.values() for state in states.split()]
    assert len(ends) == len(set(ends))  # a clause says one thing
    assert set(ends) <= set(_MOVES)
