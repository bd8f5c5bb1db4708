"""Write images and boxes in the formats of other tools, one module each.

`coco` and `dicom_sr` take the images that `grounding-rewards evaluate` writes, as `Prediction`, so that each tool shows
the boxes that were scored. `trainer_tables` takes datasets.
"""
