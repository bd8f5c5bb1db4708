"""Labels of a dataset's films in the words of the shared vocabulary."""

from __future__ import annotations

from grounding_rewards.data.readers.base import FilmRecord
from grounding_rewards.labels import SEVERAL, normalize_label


def normalize_record(record: FilmRecord, dataset: str | None = None) -> FilmRecord:
    """The film with each label as the shared vocabulary has it, with its side; unknown labels stay, in lower case.

    Where a label holds several, as in `effusion|atelectasis`, each is looked up.

    Args:
        record: a film from a reader.
        dataset: the reader's name, for words that mean something in this dataset alone.

    Example:
        >>> film = FilmRecord("1", "1.png", [[0, 0, 9, 9], [0, 0, 5, 5]], ["Effusion", "Left Lung"])
        >>> normalize_record(film, "nih-chestxray14").labels
        ['pleural effusion', 'left lung']
    """
    labels = [
        SEVERAL.join(normalize_label(one, dataset).text for one in label.split(SEVERAL)) for label in record.labels
    ]
    return record._replace(labels=labels)
