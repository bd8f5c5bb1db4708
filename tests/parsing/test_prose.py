"""What counts as "nothing to mark" in words, and what only sounds like it."""

import pytest

from grounding_rewards.parsing.prose import echoes_prompt, states_nothing

NEGATIVES = [
    # words that published prompts ask for
    "No Objects",
    "none",
    "None.",
    "null",
    "n/a",
    # wrapped
    "```json\nnull\n```",
    "json\nnone",
    "**No findings.**",
    "['No Objects']",
    "<box>none</box>",
    # sentences of chest-film data sets, paraphrased, with and without the word no
    "No lesions or abnormalities can be seen on this chest film.",
    "I can't find any lesion here.",
    "I couldn’t detect any abnormality.",
    "The film seems to be clear of any lesions.",
    "The study shows a clean bill of health with no visible lesions.",
    "The lungs are clear.",
    "Heart size is within normal limits.",
    "Unremarkable chest radiograph.",
    "Normal chest X-ray.",
    "There are none.",
    "There is no pneumothorax.",
    "No consolidation detected.",
    "No pneumothorax. No effusion.\nThe heart is normal.",
    "The lungs are free of focal opacity.",
    "Pleural effusion is not seen.",
    "Negative for fracture.",
    "The image does not show any abnormality.",
    "This film shows no nodule.",
    "Impression: no acute finding.",
    "NO FINDINGS",
    "No abnormality is visible on this image.",
    "Nothing abnormal.",
    # telegraphic, as in reports
    "Heart size normal. Lungs clear. No effusion.",
    "Impression: Normal.",
    "Pneumothorax: absent. Effusion: none.",
    # a clause in front
    "Based on the provided chest X-ray, there are no visible abnormalities.",
    "In this image, no abnormalities are present.",
    "After careful review, I find no abnormalities.",
    "There aren't any abnormalities.",
    "This is a normal chest X-ray.",
    "The lungs are well expanded and clear.",
    "There are clear lungs with no effusion.",
    # words of doubt that are denied
    "No suspicious nodules or masses.",
    "There is no evidence of suspicious lesions.",
    # lists
    "No consolidation, large effusion, or pneumothorax.",
    "No pneumothorax is identified, and the lungs are clear.",
]
NOT_NEGATIVES = [
    "",
    " \n",
    ".",
    # nothing said about findings
    "I am a language model.",
    "cardoorwheel",
    # a finding without a box
    "There is a left effusion.",
    "There is a left effusion. No pneumothorax.",
    "No pneumothorax, but a left effusion.",
    # only sounds negative
    "No change in the left effusion.",
    "No interval change.",
    "No significant improvement of the consolidation.",
    "The effusion is no longer on the left.",
    "Cannot rule out pneumonia.",
    "Pneumonia cannot be excluded.",
    "The lungs are not clear.",
    "No doubt there is a mass.",
    "No other masses.",
    "No definite mass, possibly a nodule.",
    # a finding after the negative
    "No effusion and a large mass.",
    "No pneumothorax, stable cardiomegaly.",
    "There is no effusion, and there is a mass.",
    "There is no effusion and the heart is enlarged.",
    "The lungs are clear with a small nodule in the left apex.",
    "No, a nodule is present.",
    # emphasis
    "It is clear that there is a mass.",
    "There is clear evidence of a mass.",
    "No less than three nodules are seen.",
    "Without question a mass.",
    # what is missing is healthy
    "None of the lobes is spared.",
    "No part of the lung is clear.",
    "There is no normal lung left.",
    "No lung markings on the right.",
    # about another film
    "The nodule was not visible on the prior film.",
    "No prior films.",
    # about the question, not about the film
    "No idea.",
    "No comment",
    "No image was provided.",
    "I can't see any image",
    "I don't have an answer",
    "There is no way to know",
    "None of the above",
    "nothing comes to mind",
    "Without seeing the film I cannot tell.",
    "No more",
    # repetition of a negative that never ends
    "No ObjectsOutputOutputOutputOutput",
    # a report, not a statement
    "No effusion. " * 1000,
]
ECHOES = [
    "If there are no findings, return 'No Objects'.",
    "Output None if no lesion is visible.",
    "Please provide the bounding boxes in the following format: [x1, y1, x2, y2]. No findings: [].",
    "Respond with [] when nothing is found.",
    "Answer with 'none' otherwise.",
]


@pytest.mark.parametrize("answer", NEGATIVES)
def test_states_nothing(answer):
    assert states_nothing(answer)


@pytest.mark.parametrize("answer", NOT_NEGATIVES)
def test_states_something_else(answer):
    assert not states_nothing(answer)


@pytest.mark.parametrize("answer", ECHOES)
def test_echoed_prompt_states_nothing_of_its_own(answer):
    assert echoes_prompt(answer)
    assert not states_nothing(answer)
