"""No reward's number changes unnoticed: every one is compared, to the last digit, with the file that keeps them."""

import json

import grounding_rewards as gr
from tests.rewards.golden import FILE, compute_numbers, is_same


def test_no_number_has_changed() -> None:
    kept = json.loads(FILE.read_text(encoding="utf-8"))["numbers"]
    found = compute_numbers()
    changed = [
        f"{reward}, image {image!r}, completion {completion!r}: {number!r} was {was!r}"
        for reward, images in found.items()
        for image, completions in images.items()
        for completion, number in completions.items()
        if not is_same(reward, number, was := kept.get(reward, {}).get(image, {}).get(completion))
    ]
    assert not changed, (
        f"{len(changed)} numbers are not those of {FILE.name}: {changed[:5]}. A number that changes asks for a version "
        "that breaks with this one, see CONTRIBUTING.md. After a new row in tests/rewards/golden.toml: "
        "python scripts/checks/write_golden.py."
    )
    assert [*found] == [*kept]


def test_the_rows_tell_the_rewards_apart() -> None:
    numbers = compute_numbers()
    assert len({json.dumps(one) for one in numbers.values()}) == len(numbers)
    assert {name.split()[0] for name in numbers} == set(gr.list_rewards())
    assert all(0 <= number <= 1 for images in numbers.values() for one in images.values() for number in one.values())
