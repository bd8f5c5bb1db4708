"""Write images and boxes in the formats of other tools, one module each.

`dicom_sr` takes the images that `grounding-rewards evaluate` writes, as `Prediction`, so that viewers show the boxes
that were scored. `trainer_tables` takes datasets.
"""
