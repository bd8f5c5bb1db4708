"""Files to pixels: formats, DICOM, greys, sizes."""
