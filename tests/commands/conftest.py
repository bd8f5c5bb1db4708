"""Films that the tests of a room below make."""

from tests.data.prepare.conftest import make_films, write_dicom_film

__all__ = ["make_films", "write_dicom_film"]
