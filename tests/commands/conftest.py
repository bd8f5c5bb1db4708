"""Films that the tests of a room below make."""

from tests.data.prepare.conftest import make_films, write_dicom_film
from tests.exchange.conftest import films

__all__ = ["films", "make_films", "write_dicom_film"]
