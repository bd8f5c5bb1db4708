"""The tests of this folder train."""

from importlib.util import find_spec

# Without the train extra there is nothing to import here.
collect_ignore_glob = [] if find_spec("trl") and find_spec("torch") else ["test_*.py"]
