"""The shared vocabulary: every label of every dataset has a name, and nothing else gets one."""

from __future__ import annotations

import json
import re
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.labels import Label, are_synonyms, normalize_label, vocabulary

FILE = json.loads(files("grounding_rewards").joinpath("vocabulary.json").read_text(encoding="utf-8"))

# Every label of a dataset's boxes, as its files write it; the ones whose name here differs have it behind the arrow.
LABELS = {
    "vindr-cxr": """Aortic enlargement; Atelectasis; Calcification; Cardiomegaly; Consolidation; Infiltration;
        ILD > interstitial lung disease; Lung Opacity; Nodule/Mass > nodule or mass; Other lesion; Pleural effusion;
        Pleural thickening; Pneumothorax; Pulmonary fibrosis; No finding; Clavicle fracture; Edema > pulmonary edema;
        Emphysema; Enlarged PA > pulmonary artery enlargement; Lung cavity; Lung cyst; Mediastinal shift; Rib fracture;
        COPD > chronic obstructive pulmonary disease; Lung tumor; Pneumonia; Tuberculosis; Other disease;
        Other diseases > other disease""",
    "vindr-pcxr": """Anterior mediastinal mass; Aortic enlargement; Atelectasis; Boot-shaped heart;
        Bronchectasis > bronchiectasis; Bronchial thickening; Calcification; Cardiomegaly; Chest wall mass;
        Clavicle fracture; Consolidation; Dextro cardia > dextrocardia;
        Diffuse aveolar opacity > diffuse alveolar opacity; Edema > pulmonary edema; Egg on string sign; Emphysema;
        Enlarged PA > pulmonary artery enlargement; Expanded edges of the anterior ribs; Infiltration;
        Interstitial lung disease - ILD > interstitial lung disease; Intrathoracic digestive structure; Lung cavity;
        Lung cyst; Lung hyperinflation; Mediastinal shift; No finding; Other lesion;
        Other nodule/mass > nodule or mass; Other opacity; Paraveterbral mass > paravertebral mass;
        Peribronchovascular interstitial opacity; Pleural effusion; Pleural thickening; Pneumothorax;
        Pulmonary fibrosis; Reticulonodular opacity > reticulonodular pattern; Stomach on the right side; Bronchitis;
        Brocho-pneumonia > bronchopneumonia; Other disease; Bronchiolitis; Situs inversus; Pneumonia;
        Pleuro-pneumonia > pleuropneumonia; Diagphramatic hernia > diaphragmatic hernia; Tuberculosis;
        Congenital emphysema; CPAM > congenital pulmonary airway malformation; Hyaline membrane disease;
        Mediastinal tumor; Lung tumor""",
    "vindr-spinexr": """Osteophytes > osteophyte; Surgical implant; Spondylolysthesis > spondylolisthesis;
        Foraminal stenosis; Disc space narrowing; Vertebral collapse; Other lesions > other lesion; No finding""",
    "rsna-pneumonia": """Lung Opacity; Normal > no finding;
        No Lung Opacity / Not Normal > no lung opacity, not normal""",
    "nih-chestxray14": """Atelectasis; Cardiomegaly; Effusion > pleural effusion; Infiltrate > infiltration;
        Infiltration; Mass; Nodule; Pneumonia; Pneumothorax; Consolidation; Edema > pulmonary edema; Emphysema;
        Fibrosis > pulmonary fibrosis; Pleural_Thickening > pleural thickening; Hernia; No Finding""",
    "chestx-det": """Atelectasis; Calcification; Cardiomegaly; Consolidation; Diffuse Nodule > diffuse nodules;
        Effusion > pleural effusion; Emphysema; Fibrosis > pulmonary fibrosis; Fracture; Mass; Nodule;
        Pleural Thickening; Pneumothorax""",
    "chestx-det10": """Atelectasis; Calcification; Consolidation; Effusion > pleural effusion; Emphysema;
        Fibrosis > pulmonary fibrosis; Fracture; Mass; Nodule; Pneumothorax""",
    "ms-cxr": """Atelectasis; Cardiomegaly; Consolidation; Edema > pulmonary edema; Lung Opacity; Pleural Effusion;
        Pneumonia; Pneumothorax""",
    "siim-acr": "Pneumothorax",
    "object-cxr": "foreign object > foreign body",
    "tbx11k": """ActiveTuberculosis > active tuberculosis; ObsoletePulmonaryTuberculosis > latent tuberculosis;
        PulmonaryTuberculosis > tuberculosis""",
    "deeplesion": """bone > bone lesion; abdomen > abdominal lesion; mediastinum > mediastinal lesion;
        liver > liver lesion; lung > lung lesion; kidney > kidney lesion; soft tissue > soft tissue lesion;
        pelvis > pelvic lesion; lesion""",
    "grazpedwri-dx": """boneanomaly > bone anomaly; bonelesion > bone lesion; foreignbody > foreign body; fracture;
        metal; periostealreaction > periosteal reaction; pronatorsign > pronator sign; softtissue > soft tissue; text;
        axis""",
    "fracatlas": "fractured > fracture",
    # Misspellings and shared findings among PadChest's 193 labels; the rest are their own names.
    "padchest-gr": """COPD signs > chronic obstructive pulmonary disease; NSG tube > nasogastric tube;
        adenopathy > lymphadenopathy; apical pleural thickening > pleural thickening; atelectasis basal > atelectasis;
        bullas > bulla; cavitation > lung cavity; esophagic dilatation > esophageal dilatation;
        ground glass pattern > ground-glass opacity; infiltrates > infiltration;
        laminar atelectasis > linear atelectasis; normal > no finding; pectum excavatum > pectus excavatum;
        pneumoperitoneo > pneumoperitoneum; pulmonary mass > mass; multiple nodules; pleural effusion; mass; metal;
        right sided aortic arch > right-sided aortic arch; vertebral compression; subcutaneous emphysema""",
    "chest-imagenome": """trachea; spine; carina; mediastinum; upper mediastinum; abdomen; aortic arch;
        svc > superior vena cava; cavoatrial junction; right atrium; descending aorta; cardiac silhouette;
        left cardiac silhouette; right cardiac silhouette""",
}
CASES = [
    (dataset, *(part.strip() for part in f"{case} > ".split(">")[:2]))
    for dataset, cases in LABELS.items()
    for case in cases.split(";")
]


@pytest.mark.parametrize(("dataset", "label", "name"), CASES)
def test_every_label_of_a_dataset_has_a_name(dataset, label, name):
    found = normalize_label(" ".join(label.split()), dataset)
    assert (found.name, found.laterality, found.known) == (name or " ".join(label.casefold().split()), None, True)


@pytest.mark.parametrize("dataset", FILE["datasets"])
def test_every_label_in_the_file_leads_to_its_name(dataset):
    for label, name in FILE["datasets"][dataset]["labels"].items():
        assert normalize_label(label, dataset).name == name
        assert name in vocabulary()


REGIONS = """lung|apical zone|upper lung zone|mid lung zone|lower lung zone|hilar structures|costophrenic angle
cardiophrenic angle|hemidiaphragm|clavicle|upper abdomen"""


@pytest.mark.parametrize("region", re.split(r"[|\n]", REGIONS))
def test_paired_regions_of_chest_imagenome_keep_their_side(region):
    for side in ("left", "right"):
        label = f"{side} {region}"
        assert normalize_label(label, "chest-imagenome") == Label(region, side, label, True)
        assert normalize_label(label, "chest-imagenome").text == label
    assert not are_synonyms(f"left {region}", f"right {region}")


def test_words_of_deeplesion_mean_lesions_there_alone():
    assert normalize_label("lung", "deeplesion").name == "lung lesion"
    assert normalize_label("lung").name == "lung"
    assert not normalize_label("pelvis", "coco").known


def test_no_word_has_two_meanings():
    meanings: dict[str, set[str]] = {}
    for name, finding in vocabulary().items():
        for word in (name, *finding.synonyms):
            meanings.setdefault(normalize_label(word).name, set()).add(name)
    for dataset in FILE["datasets"].values():
        for label, name in dataset["labels"].items():
            if label not in dataset.get("own_words", ()):
                meanings.setdefault(normalize_label(label).name, set()).add(name)
    assert {word: found for word, found in meanings.items() if found != {word}} == {}


def test_parents_and_sources_exist():
    names, sources = vocabulary(), {*FILE["sources"], *FILE["datasets"]}
    for finding in names.values():
        assert finding.source in sources, finding
        seen, parent = {finding.name}, finding.parent
        while parent is not None:
            assert parent not in seen, f"{finding.name} is a kind of itself"
            seen.add(parent)
            parent = names[parent].parent


@pytest.mark.parametrize(
    ("text", "name", "side"),
    [
        ("left pleural effusion", "pleural effusion", "left"),
        ("Left-sided effusion", "pleural effusion", "left"),
        ("effusion in the right hemithorax", "pleural effusion", "right"),
        ("bilateral pleural effusions", "pleural effusion", "bilateral"),
        ("small bibasilar effusions", "pleural effusion", "bilateral"),
        ("left and right effusions", "left and right effusions", "bilateral"),  # "and" may join two findings
        ("RLL consolidation", "consolidation", "right"),
        ("consolidation, LUL", "consolidation", "left"),
        ("RML atelectasis", "atelectasis", "right"),
        ("L pleural effusion", "pleural effusion", "left"),
        ("effusion, R", "pleural effusion", "right"),
        ("l. lung", "lung", "left"),
        ("R atrium", "right atrium", None),  # the side is part of the name
        ("lingular opacity", "lung opacity", "left"),
        ("right upper lobe nodule", "nodule", "right"),
        ("patchy opacities in both lungs", "lung opacity", "bilateral"),
        ("both lungs", "lung", "bilateral"),
        ("Right Lung", "lung", "right"),
        ("right atrium", "right atrium", None),  # the side is part of the name
        ("left heart", "left cardiac silhouette", None),
        ("stomach on the right side", "stomach on the right side", None),
        ("severe cardiomegaly", "cardiomegaly", None),
        ("Pleural_Thickening", "pleural thickening", None),
        ("GROUND GLASS  OPACITIES", "ground-glass opacity", None),
        ("oedema", "pulmonary edema", None),
    ],
)
def test_sides_degrees_and_places_are_read_off(text, name, side):
    assert normalize_label(text)[:2] == (name, side)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "no pleural effusion",  # a negation must not become a finding
        "without nodule",
        "effusion or mass",  # two findings are none
        "effusion, mass, nodule",
        "possible pneumonia",
        "resolved pneumothorax",
        "left lower lobe",  # a place alone
        "effusion l mass",  # a letter that stands at neither end
        "L",
        "lower abdomen",  # another place than the abdomen
        "large heart",  # an organ with a size is a finding that nobody listed under this name
        "pneumothoraxx",
        "计算",
        "🫁",
        "a" * 10_000,
    ],
)
def test_unknown_labels_stay_as_they_are(text):
    found = normalize_label(text)
    assert not found.known
    assert found.name == found.text == " ".join(text.casefold().split())
    assert found.original == text


@pytest.mark.parametrize(
    ("a", "b", "agree"),
    [
        ("Infiltrate", "Infiltration", True),
        ("Effusion", "Pleural effusion", True),
        ("Edema", "pulmonary oedema", True),
        ("effusion", "pericardial effusion", False),
        ("Infiltration", "Consolidation", False),
        ("Lung Opacity", "Consolidation", False),
        ("Nodule/Mass", "Nodule", False),  # else "nodule/mass" would be right everywhere
        ("Nodule", "Mass", False),
        ("Emphysema", "subcutaneous emphysema", False),
        ("rib fracture", "fracture", False),
        ("left effusion", "Effusion", True),
        ("left effusion", "right effusion", False),
        ("left effusion", "bilateral effusions", True),
        ("lung", "left lung", False),  # a part of the body is one place
        ("left lung", "Left Lung", True),
        ("cardiac silhouette", "left cardiac silhouette", False),
        ("My own  label", "my own label", True),
        ("my own label", "my own labels", False),
        ("no effusion", "effusion", False),
    ],
)
def test_synonyms(a, b, agree):
    assert are_synonyms(a, b) is agree
    assert are_synonyms(b, a) is agree


@given(st.text(max_size=40))
def test_any_text_is_its_own_synonym_and_has_a_name(text):
    assert are_synonyms(text, text)
    assert are_synonyms(text, f"  {text}\n")
    found = normalize_label(text)
    assert found.known == (found.name in vocabulary())


@given(st.sampled_from(sorted(vocabulary())))
def test_a_name_with_its_side_is_stable_when_normalized_again(name):
    again = normalize_label(normalize_label(f"left {name}").text)
    assert again[:2] == normalize_label(f"left {name}")[:2]
    assert normalize_label(name) == Label(name, None, name, True)


@pytest.mark.parametrize("label", [None, 3, float("nan"), ["effusion"]])
def test_what_is_no_text_is_refused(label):
    with pytest.raises(ValueError, match="Expected a text for `text`, got"):
        normalize_label(label)


def test_no_vocabulary_word_begins_or_ends_with_a_side_letter():
    words = [word for name, finding in vocabulary().items() for word in (name, *finding.synonyms)]
    words += [label for dataset in FILE["datasets"].values() for label in dataset["labels"]]
    assert not [word for word in words if re.search(r"(?i)^[lr]\b(?!$)|(?<!^)\b[lr]$", word)]


def test_labels_of_real_files_are_all_known(shared_dir):
    boxes = json.loads((shared_dir / "data/annotations/chestx_det/ChestX_Det_test.sample.json").read_text())
    assert all(normalize_label(label, "chestx-det").known for image in boxes for label in image["syms"])
    lines = (shared_dir / "data/cxr_lungs/annotations.jsonl").read_text().splitlines()
    assert all(normalize_label(label).known for line in lines for label in json.loads(line)["labels"])
