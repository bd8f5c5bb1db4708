"""The words of chest reports by class, for the rules in `prose.py`: data, no logic.

A word in no table has the class `word`, which the grammar allows only behind a negation. So a word is added here to
read more negatives, and to class `bad` where a negation with it denies nothing.
"""

#: Phrases by class; the first that fits counts.
PHRASES = {
    # the quality of the picture, or of the answer
    "bad": r"\b(?:the\ )?(?:image|picture|photo|film|answer|question)\ (?:is|looks|appears)\ clear\b(?!\ of)",
    # a sentence ends or a label stands before one: "Impression:", "the answer is"
    "stop": r"""(?:^|\n)\ ?(?:findings?|impression|conclusion)\ ?(?=\n) | [.;!\n()。•–—-] | \d{1,2}[.)](?=\ ) | \bjson\b
        | \b(?:the\ )?(?:final\ )?(?:answer|result|impression|conclusion)(?:\ is(?:\ ?:)?|\ ?:)
        | \b(?:response|output|label|class|bbox|findings?|diagnosis|assessment|summary|exam|study|technique)\ ?:
        | \b(?:comparison|history)\ ?:\ (?:none|n/a)\b""",
    "mark": r"""\bto\ (?:be\ )?(?:mark|report|annotate|locali[sz]e|box|draw|see|show|note|label|highlight)(?:ed|d|n)?\b
        | \bof\ (?:note|concern|significance)\b""",
    "skip": r""",?\ ?\bas\ far\ as\ (?:i|we)\ can\ (?:tell|see)\b | \b(?:to\ be|able\ to)\b
        | \bat\ (?:this\ time|present|all)\b
        | \bcould(?=\ (?:not|be\ (?:seen|found|identified|detected))\b)
        | \bfindings\ are(?=\ (?:all\ )?(?:normal|unremarkable|within\ normal|negative)\b)""",
    "none": r"\bn/a\b",
    "or": r"/ | \band/or\b | \bor\ (?:any\ )?other\b",
    "no": r"""\bnone\ of\ the(?=\ (?:\w{1,30}\ )?(?:findings|abnormalities|lesions)\b)
        | \b(?:(?:free|clear|devoid|absence|lack)\ of|negative\ for|0(?=\ [a-z]))\b""",
    "not": r"\b(?:unable|fail(?:s|ed)?)\ to\b",
    "normal": r"""\bwithin\ (?:the\ )?(?:normal\ (?:limits|range)|limits\ of\ normal)\b | \bclean\ bill\ of\ health\b
        | \b(?:well|fully|symmetrically|normally|adequately)\ (?:expanded|inflated|aerated|ventilated|defined)\b
        | \bin\ the\ midline\b""",
    "like": r"""\b(?:to|that)\ (?:suggest|indicate)s?\b | \b(?:suggestive|indicative)\ of\b
        | \b(?:concerning|worrisome|suspicious)\ for\b | \b(?:consistent|compatible)\ with\b""",
    "in": r"\bwrong\ with\b",
    "image": r"\bx\ ?rays?\b",
    "find": r"""\b(?:mass|fracture|disease|consolidation|target)\ (?:lesion|process|pattern|deformity|line|object)s?\b
        | \bfree\ (?:intraperitoneal\ |peritoneal\ |subdiaphragmatic\ |abdominal\ )?air\b
        | \bbounding\ box(?:es)?\b | \bforeign\ bod(?:y|ies)\b
        | \bair\ bronchograms?\b | \b(?:degenerative|fibrotic|cystic|inflammatory|emphysematous)\ changes?\b""",
}

#: Words by class, without the s of the plural.
WORDS = {
    "no": "no without zero neither",
    "yes": "yes",
    "none": "none null nil nad empty",
    "nothing": "nothing",
    "anything": "anything",
    "not": "not",
    "or": "or nor",
    "and": "and",
    "with": "with",
    "that": "that since because",
    "there": "there",
    "the": "the this a an any these those both either each all such its their my your one two three",
    "who": "i we it",
    "be": "is are was were be been being am appear appeared appearing seem seemed look looked remain",
    "have": "has have had",
    # verbs that help, interjections, adverbs that leave a statement as strong as it is
    "skip": """can do does did sorry overall thus therefore so indeed here currently presently also grossly
        carefully thoroughly essentially entirely completely fully bilaterally radiographically definitely definitively
        readily relatively quite very perfectly generally""",
    "see": "see saw find detect identify observe note locate visualize visualise discern recognize notice conclude",
    "seen": """seen found identified present visible noted observed evident demonstrated appreciated visualized
        visualised apparent discernible identifiable detectable recognized appreciable noticeable needed required""",
    "detected": "detected",
    "absent": "absent",
    "show": """show showed showing reveal revealed revealing demonstrate demonstrating contain containing display
        displayed displaying exhibit exhibited indicate indicating depict depicted presents""",
    "done": "obtained performed provided given submitted acquired reviewed available",
    "look": """based upon after following reviewing looking examining examined having review analysis analyzing
        inspection evaluation careful thorough close detailed""",
    "in": "in on at of within for from throughout along below above beneath under near around over regarding",
    "image": """image film picture photo radiograph chest study exam examination scan cxr xray radiography view
        projection patient report case imaging""",
    # what a film of anybody shows
    "anat": """lung lobe heart mediastinum hilum hila hilus diaphragm hemidiaphragm angle trachea carina bronchus
        bronchi airway pleura vasculature vessel vascularity aorta arch knob artery vein bone rib clavicle scapula
        spine vertebra vertebrae sternum shoulder thorax hemithorax cage wall tissue structure silhouette contour
        border margin size shape position outline surface space field zone apex apices base volume width caliber
        marking aeration inflation bubble stomach bowel gas air abdomen spleen liver breast node ratio configuration
        everything parenchyma age appearance side skeleton anatomy organ quadrant hemithoraces""",
    "normal": """normal unremarkable intact sharp midline healthy negative symmetric symmetrical patent wnl preserved
        regular appropriate""",
    "clear": "clear",
    "abn": """abnormal enlarged blunted widened dilated elevated deviated displaced suspicious thickened tortuous
        prominent depressed flattened collapsed wrong concerning worrisome unusual hyperinflated obscured shifted
        calcified engorged congested remarkable""",
    # attributes that claim nothing by themselves
    "mod": """acute focal pleural pulmonary cardiac cardiopulmonary cardiothoracic cardiomediastinal mediastinal hilar
        perihilar osseous bony skeletal thoracic intrathoracic parenchymal interstitial alveolar airspace lymph active
        significant obvious definite overt frank gross discrete convincing radiographic radiological radiologic
        clinical pathological pathologic frontal lateral pa ap portable upright supine erect single requested specified
        imaged stable vascular bronchovascular soft costophrenic pericardial tracheal aortic ground glass radiopaque
        lytic infectious inflammatory traumatic cardiogenic pneumonic""",
    # attributes that describe a finding, and where: what follows a negation and starts with one is a new statement
    "size": """small large tiny mild moderate severe minimal trace subtle big huge massive multiple scattered diffuse
        patchy dense extensive linear loculated nodular""",
    "side": """left right bilateral bibasilar bibasal basilar basal upper lower middle apical retrocardiac unilateral
        central peripheral subpleural""",
    "evid": "evidence sign indication suggestion area region focus foci feature site type form presence",
    "find": """finding abnormality lesion object box target annotation disease process pathology disorder anomaly
        infection infiltrate infiltration consolidation opacity opacification density shadowing nodule mass tumor
        tumour cancer malignancy metastasis metastases effusion fluid congestion collapse fracture dislocation
        deformity calcification granuloma scar scarring fibrosis thickening blunting enlargement widening shift
        deviation displacement adenopathy hernia cavity cavitation cyst bulla bullae bleb hyperinflation tb covid ild
        copd failure hemorrhage injury trauma device line tube catheter pacemaker wire clip hardware implant stent
        haziness reticulation honeycombing redistribution prominence tortuosity aneurysm dissection pneumoperitoneum
        embolism infarct inflammation illness irregularity defect asymmetry distortion loss elevation flattening
        erosion lucency obstruction engorgement cephalization pneumomediastinum""",
    # pseudo-negations: nothing is denied, but a change, a rest, a doubt, or about another film
    "bad": """change changed interval increase increased decrease decreased improvement improved resolution resolved
        progression progressive worsening growth growing persistent doubt question longer more less fewer other further
        additional new residual recurrent remaining only just reason need way idea answer text file but except however
        although though while may might would should must will if who which than by per nobody everyone previous prior
        previously old known maybe perhaps possible possibly probable probably likely versus vs matter difference
        regression clearing alteration reduction response recovery resolving improving changing enlarging increasing
        decreasing simple mere ordinary error input data prompt language diagnosis prognosis unless
        until otherwise elsewhere else could how when where why what whether whose he she they you then once whereas
        yet even never hardly almost""",
}
