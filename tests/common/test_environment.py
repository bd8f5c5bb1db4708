"""What is installed, under headings."""

import pytest

from grounding_rewards.common import environment


def test_what_governs_threads_and_devices_is_named(monkeypatch):
    given = {"OMP_NUM_THREADS": "3", "OMP_WAIT_POLICY": "active", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    # An empty list of devices hides them all.
    assert environment._machine(False).items() >= {**given, "CUDA_VISIBLE_DEVICES": "empty"}.items()
    monkeypatch.delenv("OMP_WAIT_POLICY")
    machine = environment._machine(False)
    assert (machine["OMP_WAIT_POLICY"], machine["GPU"]) == ("not set", "unknown without torch")


def test_packages_of_every_extra_are_named(monkeypatch):
    lines = ["numpy>=1.26", 'pydicom>=3.0.1; extra == "dicom"', "highdicom>=0.24 ; extra == 'dicom'"]
    monkeypatch.setattr(environment, "requires", lambda name: lines)
    monkeypatch.setattr(environment, "package_version", lambda name: None if name in ("torch", "highdicom") else "1")
    monkeypatch.setattr(environment, "_BESIDE", ("torch",))
    assert environment.environment()["packages"] == {"numpy": "1", "pydicom": "1"}


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ({"vllm": None, "transformers": "5.24.0"}, None),
        (environment.TESTED_WITH_VLLM, None),
        # Each of the two may be another.
        ({**environment.TESTED_WITH_VLLM, "transformers": "5.17.0"}, "here are vllm 0.30.0 and transformers 5.17.0"),
        ({**environment.TESTED_WITH_VLLM, "vllm": "0.31.0"}, "vLLM was tested as vllm 0.30.0 and transformers 5.24.0"),
    ],
)
def test_an_untested_pair_with_vllm_is_named(versions, message, monkeypatch):
    monkeypatch.setattr(environment, "package_version", versions.get)
    assert (sentence := environment.untested_vllm()) is None or message in sentence
    assert (sentence is None) == (message is None)


def test_a_torch_that_cannot_be_loaded_is_said_and_ends_nothing(monkeypatch):
    def broken(name):
        raise OSError("libcudart.so: cannot open shared object file in /home/somebody")

    monkeypatch.setattr(environment.importlib, "import_module", broken)
    assert environment._gpus() == {"GPU": "unknown: torch cannot be loaded (OSError)"}
