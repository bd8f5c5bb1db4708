"""The words of radiology reports by class, for the rules in `prose.py`: data, no logic.

A word in no table has the class `word`: it may be denied or called normal, but is taken for a finding where it is
not. A word is added here where it means more than its noun: parts of the body, which don't vanish by being denied, and
class `bad`, where a negation with it denies nothing.
"""

#: Phrases by class; the first that fits counts.
PHRASES = {
    "colon": r""": | \?(?=\ ?(?:no|none|nil|negative|absent|not)\b)
        | \?\ (?:there\ (?:is|are)|i\ (?:do|can|could))\ (?=(?:no|none|not)\b)
        | \?\ (?:a|answer)\ ?:\ (?=(?:no|none|not|nil|negative|absent)\b)""",
    # the quality of the picture, or of the answer
    "bad": r"""\b(?:exceeds?|exceeding|outside|above|beyond)\ (?:the\ )?(?:normal|upper|expected)\b
        | \bto\ be\ (?:sure|certain)\b
        | \b(?:ct|mri|ultrasound|scan|image|view|image|study)\ (?:is|are|would\ be)\ (?:needed|required|necessary
            |advised|recommended)\b
        | \b(?:image|image|picture|scan)\ (?:is|was|looks)\ (?:too\ )?(?:black|blank|dark|empty|cropped|cut|blurry
            |noisy|unreadable)\b
        | \bto\ be\ (?:excluded|ruled\ out)\b | \b(?:all|anything|everything|nothing|none)\ but\b | \btop\ normal\b
        | \b(?:image|image|file|scan|picture)s?\ (?:was|is|were)\ attached\b | \bno\ matter\b
        | \b(?:the\ )?(?:image|picture|photo|image|answer|question)\ (?:is|looks|appears)\ clear\b(?!\ of)""",
    # a sentence ends or a label stands before one: "Impression:", "the answer is"; what was asked, and known before
    "stop": r"""(?:^|\n)\ ?(?:findings?|impression|conclusion)\ ?(?=\n) | [.;!\n)。•–—-]
        | ,\ ?(?:so|hence|thus|therefore)\b
        | (?<!\bclass\ )\((?!\ ?normal\ ?\)|[a-z\ ,/]{1,40}\)\ (?:is|are|was|were)\ not\b)
        | \d{1,2}[.)](?=\ ) | \bjson\b
        # what led to the image
        | \b(?:the\ )?(?:patient|child|man|woman|boy|girl)\ (?:fell|(?:presented|presents|came|complained|complains
            |is\ here
            |was\ seen)\ (?:with|for|of|after)\ (?:an?\ )?(?:\w{1,12}\ ){0,2}(?:pain|cough|fever|dyspnoea|dyspnea
            |breath|fall|accident|trauma|injury|headache|weakness|dizziness))\b[^.,;\n]{0,40}(?=[.,;\n])
        | \b(?:the\ )?clinical\ (?:concern|question|suspicion|query)\ (?:was|is)\ [^.,;\n]{1,50}(?=[.,;\n])
        # thanks, and advice that nothing need be done
        | \bthank(?:s|\ you)(?:\ (?:very|so)\ much)?(?:\ for\ (?:(?:the|this|your|sending|sharing|providing|uploading
            |referring|asking|me|us|chest|x\ ray|kind|interesting)\ ){0,4}(?:image|image|scan|x\ ray
            |radiograph|picture|study|referral|question|patient))?(?=\ ?[.,;!\n])
        | (?:,|\band)?\ ?\b(?:i|we)\ (?:recommend|advise|suggest)\ (?:routine|regular|annual|age\ appropriate)
            \ (?:\w{1,12}\ )?(?:screening|follow\ up|check\ ups?|recall|mammography)\b
        | \bnext\ (?:screening|mammogram|scan|check\ ?up|examination|visit)\ (?:is\ due\ )?in\ \w{1,6}\ (?:year
            |month)s?
        | \b(?:continue\ )?(?:routine|annual|regular|age\ appropriate)\ (?:(?:breast|dental|eye|cancer|mammographic
            |clinical)\ ){0,2}(?:screening|recall
            |surveillance|mammography|check\ ups?)(?:\ (?:is|are)\ (?:recommended|advised|suggested|appropriate
            ))?(?:\ in\ \w{1,6}\ (?:year|month)s?)?(?=\ ?(?:$|[.;\n]))
        | \bno\ (?:(?:further|additional|specific)\ )?(?:imaging|follow\ up|action|treatment|evaluation
            |work\ ?up|investigation|intervention)s?(?:\ (?:is|are)\ (?:needed|required|necessary|recommended
            |indicated|advised|suggested))?(?=\ ?(?:$|[.;\n]))
        | \b(?:there\ are\ )?scattered\ fibroglandular\ (?:densit(?:y|ies)|tissues?)\b
        | (?:,?\ ?(?:so|hence|thus|therefore),?\ )?\b(?:(?:the|my)\ )?(?:final\ )?(?:answer|result|impression
            |conclusion|output|response|opinion)(?:\ to\ (?:your|the)\ (?:request|question|query
            |prompt))?(?:\ is(?:\ that\b|\ ?:)?|\ ?:)
        | \b(?:(?:(?:al)?though|while|because|since|as)\ )?(?:the|this|an?)\ (?:\w{1,20}\ )?\w{1,20}\ (?:was
            |is)\ (?:referred|sent|brought|admitted)\ (?:for
            |after|with|to|because|following)\b[^.;,\n]{1,80}(?=[.;,\n])
        | \b(?:response|output|label|class|bbox|predictions?|findings?|diagnosis|assessment|opinion|report|summary
            |exam|study
            |(?:detection|detected|predicted)\ [a-z]{1,10})\ ?:
        | \b(?:despite|in\ spite\ of)\ [^.,;\n]{0,40}\b(?:search(?:es|ing)?|inspection|scrutiny|look
            |review)\b[^.,;\n]{0,40},
        | \b(?:clinical(?:\ (?:details|history|information|indication|question))?|history|indication|comparison
            |technique|protocol|reason(?:\ for\ (?:the\ )?(?:exam(?:ination)?|study|scan
            |request))?)\ ?: [^.;?\n]{1,120}(?:\?|(?=[.;\n]))
        | \b(?:q|question|step\ \d)\ ?:
        | \b(?:(?:al)?though|while|despite|in\ spite\ of|even\ with|given
            |allowing\ for)\ [^,.;\n]{0,60} \b(?:(?:was|were)\ (?:clinically\ )?suspected|suspicion|history
            |rotated|rotation|quality|positioning|inspiration|projection|motion|exposure|(?:under|over)exposed
            |suboptimal|supine|limited)\b[^,.;\n]{0,40},""",
    "mark": r"""\bfor\ which\ (?:an?\ )?(?:bounding\ )?box(?:es)?\ (?:would|could|should|needs?)\ [^.,;\n]{0,30}
        | \bto\ (?:draw|place|put)\ (?:an?\ |any\ )?(?:bounding\ )?box(?:es)?(?:\ (?:around|for|on))?\b
        | \b(?:that|which)\ (?:would|could|can|should|needs?|requires?|i|we)\b[^.,;\n]{0,30}\b(?:outlined?|mark(?:ed)?
            |box(?:e[sd])?|drawn?|report(?:ed)?|locali[sz]ed?|annotat(?:ed|ion)|locali[sz]ation|highlight(?:ed)?
            |labell?(?:ed)?)\b(?:\ (?:with|by)\ an?\ (?:bounding\ )?box\b)?
        | \b(?:that\ needs?\ )?to\ (?:be\ )?(?:mark|report|annotate|locali[sz]e|box|draw|see|show|note|label
            |highlight|return|output|give|outline|detect|locate|find|flag|describe|add|point\ (?:out|to|at))(?:ed|d
            |n)?\b | \bof\ (?:note|concern|significance)\b""",
    "skip": r"""\b(?:happy|glad)\ to\ help\b | \bfor\ (?:me|us|you)(?=\ to\b) | \bno\ (?:need|reason)\ to\ worry\b
        | \b(?:with\ )?no\ need\ for\ (?:any\ |further\ |additional\ )?(?:imaging|follow\ up|treatment|action
            |work\ ?up)\b
        | \b(?:to\ sum\ up|to\ summari[sz]e|in\ (?:short|brief|total)|all\ in\ all|all\ things\ considered)\b
        | \bgood\ news\ ?:?
        | \bwhat\ (?:i|we|you|one)\ (?:can\ |could\ )?see\ (?:here\ )?(?:is|are)\b
        | \bwhen\ (?:i|we|one)\ (?:look|zoom|compare|inspect|check|review|examine|view|assess)(?:ed|d)?
            (?:\ (?:at|in|on|into))?\ (?:(?:the|this|both|each)\ )?(?:\w{1,12}\ )?(?:base|apex|lung|heart|bone|image
            |image|it|hilum|hila|zone|side|spine|joint)s?(?=,|\ (?:i|we|there|no)\b)
        | \bno\ question\ about\ (?:it|that)\b | \b(?:larger|bigger|greater|more)\ than\ (?=\d+\ ?(?:mm|cm)\b)
        | (?<=[a-z]\ )(?:(?:that|which)\ )?you\ (?:are|were)\ (?:looking|searching|asking)\ for\b
        | ,?\ \bbe\ (?:it|they)\ \w{3,12}\ or\ \w{3,12}\b
        | \bstill(?=\ (?:do|can|cannot|could|see|find|detect|no)\b)
        | (?<=\bi\ )would(?=\ (?:call|describe|consider|read|report|rate|regard|classify|interpret)\b)
        | \b(?:from|of|taken)\ today\b | \bit\ is\ my\ (?:impression|opinion|view|reading)\ that\b
        | (?<=\bclass\ )\([a-z\ ]{1,40}\) | \bwith\ (?:an?\ )?(?:cough|fever|(?:\w{1,12}\ )?pain|dyspno?ea|headache)\b
        | (?<=\bgive\ )you\b
        | \bwhen\ (?:i|we)\ (?:examined|reviewed|looked\ at|inspected|checked)\ (?:it|the\ \w{1,12}
            |this\ \w{1,12})\b
        | (?:\b(?:that|which)\ )?\b(?:you\ (?:have\ )?|(?:was|were|has\ been)\ )(?:described?|mention(?:ed)?|named?
            |list(?:ed)?|specif(?:y|ied)|suspect(?:ed)?|provided|sent|supplied|uploaded
            |shared|attached
            |submitted|gave)\b
        | \b(?:was|were)\ (?:done|taken|performed|obtained|requested|ordered|made|acquired)\ (?:because\ of|due\ to
            |for
            |to\ (?:exclude|rule\ out|look\ for|check|assess|see))\ [^.,;\n]{1,60}(?=[.,;\n])
        | \b(?:in|to)\ (?:answer|reply|response)\ (?:to\ )?(?:your|the|this)\ (?:question|request|query|prompt)\b
        | ,\ (?:starting|beginning)\ (?:with|from|at)\ [^.,;\n]{1,60}
        | ,?\ which\ (?:is|was)\ (?:the|what|why)\ [^.,;\n]{0,40}\b(?:request|question|indication|concern|referral
            |exam
            |study|scan|asked|suspected)(?=[.,;\n])
        | \bi\ am\ (?:happy|pleased|glad)\ to\ (?:say|report|confirm|tell\ you|inform\ you)\b
        | \bcould(?=\ be\ (?:called|considered|regarded|described|interpreted|taken|labell?ed)\b)
        | \bsuspected\ clinically\b | \bclinically\ suspected\b
        | \b(?:that\ )?(?:i|we)\ can\ (?:see|find|detect|identify)(?=\ ?(?:$|[.,;\n]|in\b|on\b|here\b))
        | \bto(?=\ (?:contain|show|demonstrate|have|reveal|exhibit)\b)
        | \b(?:free\ of|without)\ (?:[a-z]{1,12}\ )?art[ie]facts?\b | \bi\ (?:d|would)\ say(?:\ that)?\b
        | \beven(?=\ (?:in|with|on)\b) | \bwould(?=\ not\ (?:draw|mark|box|outline|report|annotate)\b)
        | \bit\ seems(?:\ that)?\b
        | \b(?:beneath|throughout|within|around|behind|inside|below|above)(?:\ (?:it|them))?(?=\ ?(?:$|[.,;\n]))
        | ,?\ ?\bas\ far\ as\ (?:(?:i|we)\ can\ (?:tell|see|judge)\b|can\ be\ [^.,;\n]{1,50})
        | \b(?:to\ be|able\ to)\b | \bat\ (?:this\ time|present|all)\b
        | \bin\ (?:turn|my\ opinion|conclusion|summary|short)\b | \bto\ (?:my\ eye|me)\b
        | \bof\ (?:good|diagnostic|adequate)\ quality\b
        | \bcould(?=\ (?:not|be\ (?:seen|found|identified|detected|visuali[sz]ed|locali[sz]ed|demonstrated
            |confirmed))\b) | \([a-z\ ,/]{1,40}\)(?=\ (?:is|are|was|were)\ not\b)
        | \bfindings\ (?:are|were)(?=\ (?:all\ )?(?:normal|unremarkable|within\ normal|negative)\b)""",
    "none": r"""\b(?:leave|left|keep|leaving)\ (?:the|my)\ (?:list|answer|output|field
            |result)(?:\ of\ [a-z ]{3,20}?)?\ (?:empty|blank)\b
        | \b(?:list|set|array|output|answer|response|result)(?:\ of\ (?:bounding\ )?(?:boxes|detections|objects
            |findings
            |lesions))?\ (?:is|stays|remains)\ (?:therefore\ |thus\ |hence\ |so\ )?(?:left\ )?empty\b
        | \bnil(?=\s?(?:$|[.;,\n])) | \bno\ (?:instance|example|object)s?(?=\ (?:was|were|is|are)\b)
        | \bempty\ (?:list|array|answer)\b
        | \bno\ (?:reason|need|grounds?|cause)\ to\ (?:mark|draw|outline|box|annotate|highlight|report
            |locali[sz]e)(?:\ \w{1,12}){0,3} | \bthere\ (?:is|are|was|were)\ (?:not(?:\ any)?|none)(?=[.;\n])
        | \bn/a\b | \bnil\ (?:acute|focal|significant|abnormal|of\ note)\b(?=\s?(?:$|[.;,\n]))
        | (?<=:\ )0(?=\s?(?:$|[.;,\n])) | \ban?\ empty\ (?:list|array|answer)\b
        | \bnone\ of\ (?:them|these|those)(?=\ (?:is|are|was|were|can|could|seen|detected|found|present
            |identified)\b)""",
    "no": r"""\bno\ suspicion\ (?:of|for)\b | \bw/o\b | \bnot\ (?:a\ single|one|any|(?:a
            |the)\ (?:\w{5,8}est\ )?(?:trace|hint|sign|shred)\ of)\b
        | \bnone\ of\ the(?:se)?(?=\ (?:\w{1,30}\ ){0,2}(?:findings|abnormalities|lesions|pathologies|conditions
            |diseases|targets|classes|categories)\b)
        | \b(?:free\ from|(?:free|clear|devoid|absence|lack)\ of|empty\ of|negative\ for|0(?=\ [a-z]))\b
        | \bnil(?=\ [a-z])(?!\ (?:seen|detected|found|identified))
        | \b(?:rules\ out|excludes|refutes)\b | \b(?:nor|neither)\ (?:was|were|is|are|has|have)(?:\ there)?\b""",
    "seen": r"""\b(?:made|pointed|picked|singled)\ (?:out|up)\b | \bin\ (?:place|situ)\b | (?<=\bnot\ )a\ feature\b
        | \bappear(?=\ (?:in|on|anywhere|here)\b|\ ?(?:$|[.,;\n]))
        | (?:(?<=\bis\ )|(?<=\bare\ )|(?<=\bwere\ )|(?<=\bwas\ ))(?:provided|returned|made|placed|warranted
            |drawn)\b""",
    "see": r"\bmake\ out\b | \b(?:come|came)\ across\b",
    "draw": r"\b(?:draw|mark)(?:ing)?\ (?:anything|any\ box(?:es)?)\b",
    "or": r"/ | \band/or\b | \bor\ (?:of\ |in\ )?(?:any\ )?other\b",
    "not": r"\b(?:unable|fail(?:s|ed)?)\ to\b",
    "normal": r"""\bin\ line(?:\ with)?\b | \b(?:as|where)\ (?:it|they|one)\ (?:should|ought\ to|belongs?
            |would\ expect)(?:\ be|\ lie)?\b
        | \b(?:in\ keeping\ with|looks?|for)\ (?:its|their|his|her|the\ patient\ s|the)\ age\b | \bas\ expected\b
        | \b(?:less|no\ more|not\ more)\ than\ (?:half|50\ ?%)
        | \b(?:physis|physes|plates?|epiphyses|apophyses)\ (?:is\ |are\ )?fused\b
        | \b(?:normal|unremarkable|inconspicuous|physiological|negative|age\ appropriate)\ findings?\b
        | (?<=,\ )(?:smooth|regular|even)\ in\ (?:outline|contour|shape|appearance)\b
        | \bas\ (?:is|are)\ (?:the|both|all)\ [a-z]{3,15}(?:\ [a-z]{3,15})?(?=\ ?(?:$|[.,;\n]))
        | (?<=\band\ )so\ (?:is|are)\ (?:the|both|all)\ [a-z]{3,15}(?:\ [a-z]{3,15})?(?=\ ?(?:$|[.,;\n]))
        | \bnormally\ [a-z]{3,15}ed\b
        | (?<=\bratio\ is\ )(?:below|less\ than|under)\ ?(?:0?\.5|50\ ?%)
        | \b(?:cardiothoracic\ (?:ratio|index)|ctr)(?:\ (?:is|of|at))?\ (?:(?:below|less\ than|under)\ ?(?:0?\.5
            |50\ ?%)|0?\.[34]\d?\b)
        | ,?\ which\ (?:is|was|are|were)\ (?:all\ |both\ |also\ |completely\ |entirely\ )?(?:normal|unremarkable
            |within\ (?:the\ )?normal\ (?:limits|range))\b | \(\ ?normal\ ?\)
        | \b(?:compress|expand|inflate|distend|fill|move|taper|align)s?\ (?:fully|well|freely|evenly|completely)\b
        | \b(?:ordinary|usual|average|expected)\ (?:size|shape|contour|outline|appearance|position|calib(?:re|er))s?\b
        | (?<!\bnot\ )\b[a-z]{2,11}[a-ce-z]\ (?:normally|symmetrically|homogeneously|uniformly)(?=\ ?(?:$|[.,;\n])
            |\ (?:and|in|with|without|on)\b)
        | \b(?:keep|retain|maintain|hold)s?\ (?:its|their|a|the)\ (?:normal\ |usual\ )?(?:height|shape|contour
            |alignment|signal|outline|form|position|width|size)s?\b
        | \b(?!not|are|was|were)[a-z]{3,15}\ free(?=\ ?(?:$|[.,;\n]|and\b)) | (?<=\b(?:is|re)\ )level\b
        | (?<=[a-z]\ )(?:expanded|(?<!\bwere\ )(?<!\bwas\ )located)(?=\ ?(?:$|[.,;\n]|and\b))
        | (?<=[a-z]\ )(?:ok|okay|fine)(?=\ ?(?:$|[.,;\n]))
        | \b(?:(?:extend|reach)(?:s|es|ing)?\ (?:out\ )?to|reach(?:es|ing)?)\ the\ (?:chest\ wall|periphery)\b
        | \bwithin\ (?:the\ )?(?:normal\ (?:limits|range)|limits\ of\ normal)\b | \bclean\ bill\ of\ health\b
        | \b(?:well|fully|symmetrically|normally|adequately)\ (?:expanded|inflated|aerated|ventilated|defined
            |seated|covered|developed|minerali[sz]ed|maintained|preserved|formed|corticated|aligned|cent(?:re
            |ere)d)\b | \bin\ the\ midline\b
        | \b(?:[a-z]{1,2}|lung)\ ?rads\ (?:category\ )?1\b
        | (?<=\b(?:is|re)\ )central(?:ly\ (?:placed|located|positioned))?(?=\s?(?:$|[.,;\n]|and\b))""",
    # is normal of an organ only
    "form": r"""(?<=s\ )free(?=\ ?(?:$|[.,;\n])) | \bfree(?=\ (?:costophrenic|recess|angle|sinus))
        | \b(?:well|clearly|fully|sharply|completely)\ (?:seen|shown|displayed|visuali[sz]ed|outlined|demarcated
            |delineated)\b | \b(?:thin|smooth)\ walled\b
        | (?<=\bare\ )free(?=\ ?(?:$|[.,;\n]|and\b))
        | (?<!\bor\ )(?<!\band\ )\bcentral(?:ly)?(?=\ ?(?:$|[.,;\n])) | (?<=\bpleura\ is\ )thin\b
        | (?<=\bwall\ is\ )thin\b
        | (?<=\bwall\ )thin\b | (?<=\bskin\ is\ )thin\b""",
    "anything": r"""(?<=\bfind\ )one(?=\ ?(?:$|[.;,\n]))
        | \bwhat\ (?:you|was|were)\ (?:asked|requested|named|wanted|queried)(?:\ (?:for|about
            |to\ [a-z]{2,12}))?\b""",
    "excluded": r"(?<!\bto\ be\ )\bruled\ out\b",
    "like": r"""\b(?:that\ )?(?:looks?|appears?)\ like\b | \b(?:for|of)\ (?:the\ )?(?:category|class|label|term
            |type)\b
        | \b(?:to|that)\ (?:would\ |could\ )?(?:suggest|indicate)s?\b | \b(?:suggestive|indicative)\ of\b
        | \b(?:concerning|worrisome|suspicious)\ for\b | \b(?:consistent|compatible)\ with\b
        | \b(?:that\ )?(?:correspond|suggest|resembl|indicat|represent)(?:s|es|ing)?\b(?:\ (?:to|with)\b)?""",
    "look": r"""\b(?:here\ (?:is|are)|this\ is)\ (?:my|the|our)\ (?:\w{1,12}\ )?(?:reading|assessment|report
            |findings?|result|answer
            |analysis|interpretation)\b | \blet\ me\ (?:go\ through|look\ at|check|review|examine|describe|start\ with
            |begin\ with)
            \ (?:(?:the|this|your)\ )?(?:image|image|picture|x\ ray|radiograph|scan|lungs|it)\b | \blook(?:ed|ing)\ at\b
        | \ba\ (?:\w{1,20}\ )?look(?=\ at\b)""",
    "shape": r"\bwell\ (?!advanced|established|known|marked)[a-z]{3,15}ed\b",
    "in": r"\bwrong\ with\b" "",
    "mod": r"""\bfatty(?=\ (?:tissue|marrow|breast|parenchyma|hilum|plane|pad))
        | (?:(?<=\bcm\ )|(?<=\bmm\ ))(?:long|wide|thick|deep)\b
        | \btoday(?=\ (?:image|image|exam|examination|study|scan|x\ ray|radiograph)\b)
        | \b(?:small|large)(?=\ (?:joint|bowel|intestine|airway|vessel|toe)s?\b)
        | \b(?:after|with|without)\ (?:intravenous\ |iv\ )?(?:contrast|gadolinium)\b | \b(?:instance|case)s?(?=\ of\b)
        | \bbox(?:es)?\ for\b | \bround(?:ed)?(?=\ (?:atelectas|opacit|lesion|mass|nodul))""",
    "image": r"""\bthis\ one\b | \b(?:pa|ap|frontal|lateral|erect|upright|supine|portable)\ chest\b
        | \bx\ ?rays?\b | \bdiffusion\ weighted\b | \b\w{1,12}\ (?:year|month|week|day)s?\ olds?\b
        | \b(?:good|adequate|full|satisfactory)\ (?:inspiratory\ effort|inspiration|positioning|penetration
            |quality)\b""",
    "anat": r"""\b(?:pleural|oral|nasal|peritoneal|abdominal|thoracic|chest|uterine|medullary|joint|cranial|orbital
            |pelvic|endometrial|pericardial)\ cavit(?:y|ies)\b | (?<=\bthe\ )midline\b | \bgrowth\ plates?\b
        | \b(?:first|second|third|fourth|fifth)\ (?:metatarsal|metacarpal|toe|finger|ray|digit|ventricle)s?\b
        | \b(?:odontoid|styloid|coronoid|spinous|transverse|mastoid|alveolar)\ process(?:es)?\b
        | \bcup\ to\ disc\b | \b[clts]\ spine\b | \b(?:[clts]\d{1,2})(?:\ ?[/-]\ ?[clts]?\d{1,2})?\b""",
    "topic": r"""\b(?:regarding|concerning|with\ (?:respect|regard)\ to|as\ (?:for|to|regards)|in\ terms\ of
        |for\ the\ (?:finding|query|class|label|category|question|request))\b""",
    "ask": r"\basked\ (?:whether|if)\b",
    "seek": r"""\byou\ (?:wanted|asked|wished|want|wish|would\ like)\ (?:me\ )?to\ (?:know|see|find|check
            |[a-z]{2,8})(?:\ (?:about|if|whether))?\b
        | \basked\ (?:to\ [a-z]{2,12}|for|about)\b
        | \b(?:query|request|question|prompt|task|you)\ (?:asks?|asked|is|was)\ (?:for|about|to\ [a-z]{2,12})\b
        | \bquery(?=\ [a-z]) | \ba\ search\ for\b
        | \b(?:look|search|check|examin|assess|evaluat|screen|inspect|review|scrutini[sz])(?:ed|ing)?\ (?:(?:all|both
            |each|whole|entire|lungs?|heart|bones?|chest|brain|joints?|spine|abdomen|liver|and|of|patient|at
            |the|this|image|image|x\ ray|radiograph|scan|carefully|closely)\ ){0,4}for\b""",
    "find": r"""\bcollections?\ of\ (?:fluid|air|gas|pus|blood)\b
        | \b(?:cause|reason|grounds?)\ for\ (?:concern|alarm|worry|treatment)\b
        | \b(?:requested|listed|named|given|asked|specified|target|described|said)\ (?:class|categor[a-z]{1,3}
            |label|object|type|kind|region|entity|structure|condition|disease)(?:es|s)?\b
        | \b(?:round|rounded|smooth|dense|hazy|oval|dark|bright|white)\ (?:shadow|density|densitie|area|spot
            |line)s?\b
        | \bground\ glass(?:\ (?:opaci|nodul|chang|attenuat|densit|shadow)[a-z]{1,8})?\b
        | \b(?:lines?|tubes?)(?:,|\ (?:and|or|nor))\ (?:lines?|tubes?)\b
        | (?:(?<=\bno\ )|(?<=without\ ))(?:abnormal\ |contrast\ )?enhancement\b
        | \b(?:soft\ tissue|portal(?:\ venous)?|intravascular|subcutaneous)\ (?:gas|air)\b
        | \b(?:patholog[a-z]{2,4}|abnormal|density|signal|structural|interstitial|parenchymal|bony|osseous
            |focal)\ changes?\b | \bpleural\ lines?\b
        | \b(?:air|gas)(?=\ (?:(?:is|was)\ )?(?:\w{1,12}\ )?(?:under|beneath|below)\b)
        | \b(?!dramatic)[a-z]{2,20}(?:[rdl]ative|itic|otic|atic|lytic|osive|uctive)\ changes?\b
        | \b(?!interval|radiol|radiogr|clinical|addition|sequential|general)[a-z]{4,20}(?:al|ic|ous|ive|ary
            |ar)\ changes?\b
        | \b(?:mass|fracture|disease|consolidation|target)\ (?:lesion|process|pattern|deformity|line|object)s?\b
        | \bfree\ (?:[a-z]{1,18}(?:al|ic|neum)\ )?(?:air|gas|fluid)\b | \bmass\ effect\b
        | \bair\ fluid\ levels?\b | \bloose\ bod(?:y|ies)\b
        | \b(?:subdiaphragmatic|intramural|intraperitoneal|extraluminal)\ (?:air|gas)\b
        | \b(?:septal|kerley(?:\ [abc])?)\ lines?\b
        | \b(?:alveolar|interstitial|miliary|mosaic|reticul[a-z]{1,12})\ patterns?\b
        | \bcentral\ (?:venous\ )?lines?\b | \bmidline\ (?:shift|deviation)s?\b
        | \b(?:tumou?r|disease)\ recurrence\b | \b(?:region|area|point)s?\ of\ (?:interest|concern)\b
        | \bbounding\ box(?:es)?\b | \b(?:radio\ ?opaque\ )?foreign\ bod(?:y|ies)\b | \bair\ bronchograms?\b
        | \b(?:degenerative|fibrotic|cystic|inflammatory|emphysematous|ha?emorrhagic|ischa?emic
            |(?:osteo)?arthritic|erosive|destructive|lytic|sclerotic|atrophic|infective)\ changes?\b""",
}

#: Words by class, without the s of the plural.
WORDS = {
    "no": "no without zero neither nil nowhere",
    "yes": "yes",
    "none": "none null empty",
    "nothing": "nothing",
    "anything": "anything",
    "not": "not",
    "or": "or nor",
    "and": "and",
    "with": "with",
    "that": "that as which whose",
    "there": "there",
    "the": "the this these those either each all such its their my your one every her his our both",
    "who": "i we it they model detector algorithm network reader",
    "be": """is are was were be been being am appear appeared appearing seem seemed look looked remain appears
        seems looks lie lies measure measured measuring stay stays keeps""",
    "have": "has have had",
    # verbs that help, interjections, adverbs that leave a statement as strong as it is
    "skip": """too can do does did sorry overall thus therefore so indeed here currently presently also grossly
        carefully thoroughly essentially entirely completely fully bilaterally radiographically definitely
        definitively readily relatively quite very perfectly generally any ever anywhere altogether well
        unfortunately fortunately hence accordingly consequently truly clearly convincingly normally non
        pathologically confident sure certain nope yep ok okay whatsoever hello hi first then lastly
        secondly""",
    "see": """see saw find detect identify observe note locate visualize visualise discern recognize notice
        conclude confirm appreciate discover spot localise localize recognise perceive distinguish seeing""",
    # what a finding is that is there
    "seen": """seen found identified visible noted observed evident demonstrated appreciated visualized visualised
        apparent discernible identifiable recognized noticeable needed required observable localised localized
        depicted noticed picked spotted confirmed discovered recognised perceptible demonstrable given detected
        reported read interpreted called considered judged deemed rated described classified included covered
        exist exists occur captured delineated documented recorded shown detectable present encountered elicited
        conspicuous appreciable imaged visualizable located discerned perceived distinguished ascertained
        verified traced flagged singled pointed outstanding substantiated corroborated recognisable recognizable
        noteworthy""",
    "absent": "absent",
    "show": """show showed showing include hold holding reveal revealed revealing demonstrate demonstrating contain
        containing display displayed displaying exhibit exhibited indicate indicating depict presents depicts
        portrays demonstrates""",
    "look": """based upon after following reviewing looking examining examined having review analysis analyzing
        inspection evaluation careful thorough close detailed assessment assessed studied inspected checked
        scrutinised scrutinized searched evaluated reviewed""",
    "in": """in on at within from throughout along below above beneath under near around over regarding by to
        toward between among inside outside amid across via through""",
    "image": """image image picture photo radiograph study exam examination scan cxr xray radiography view
        projection imaging ct mri mr mra cta ctpa us ultrasound sonogram sonography mammogram mammography
        tomogram tomography echocardiogram angiogram angiography panoramic opg orthopantomogram slice frame
        photograph fundoscopy endoscopy colonoscopy dexa sequence series fluoroscopy timepoint bitewing cbct pet
        report case spect""",
    # what an image of anybody shows
    "anat": """lung lobe heart mediastinum hilum hila hilus diaphragm hemidiaphragm angle trachea carina bronchus
        bronchi airway pleura vasculature vessel vascularity aorta arch knob artery vein bone rib clavicle
        scapula spine vertebra vertebrae sternum shoulder thorax hemithorax cage wall tissue structure
        silhouette contour border margin size shape position outline surface space field zone apex apices base
        volume width caliber marking aeration inflation stomach bowel spleen liver breast ratio configuration
        everything parenchyma age appearance side skeleton anatomy organ quadrant hemithoraces joint cortex
        cortices physis physes epiphysis epiphyses metaphysis metaphyses diaphysis radius radii ulna ulnae wrist
        hand finger thumb metacarpal carpal carpus phalanx phalanges scaphoid lunate triquetrum pisiform
        trapezium trapezoid capitate hamate styloid elbow humerus humeri olecranon forearm arm acromion glenoid
        scapulae hip femur femora pelvis acetabulum acetabula sacrum coccyx ilium ischium pubis ramus rami knee
        tibia tibiae fibula fibulae patella patellae meniscus menisci ligament tendon cuff labrum acl pcl mcl
        lcl ankle malleolus malleoli mortise talus calcaneus navicular cuboid cuneiform tarsal tarsus metatarsal
        foot feet toe heel leg thigh calf muscle musculature fat cartilage synovium bursa skull calvarium vault
        cranium face mandible maxilla maxillae zygoma orbit globe nose sinus sinuses mastoid temporomandibular
        tooth teeth molar premolar incisor canine root crown enamel dentition jaw gingiva gum brain cerebrum
        cerebellum brainstem ventricle sulcus sulci gyrus gyri cistern hemisphere thalamus thalami pituitary
        sella hippocampus hippocampi differentiation matter cord canal disc disk foramen foramina facet pedicle
        lamina laminae dens odontoid lordosis curvature alignment height neck throat thyroid larynx pharynx
        nasopharynx oesophagus esophagus gland tonsil kidney ureter bladder urethra adrenal pancreas gallbladder
        duct tree colon caecum cecum appendix rectum sigmoid duodenum jejunum ileum intestine loop mesentery
        omentum peritoneum retroperitoneum prostate uterus endometrium myometrium ovary ovaries adnexa testis
        testes testicle scrotum cervix placenta skin nipple axilla axillae eye retina retinae macula fovea
        cornea lens fundus vitreous cup ivc svc atrium atria myocardium pericardium valve septum carotid chamber
        segment end shaft tip condyle epicondyle tuberosity trochanter crest wing roof floor dome edge row body
        bodies part limb extremity extremities digit nail girdle nerve lumen mucosa villus fissure interstitium
        marrow architecture echotexture intensity perfusion flow interface junction tract half compartment
        attachment insertion portion column dentine pulp periodontium follicle ossicle cochlea bulb trunk cuspid
        leaflet arcade plexus sac thymus arteries ventricles cisterns pole lobule acinus parenchymal excursion
        effort inspiration pad cruciate collateral sacroiliac acromioclavicular scapholunate radiocarpal
        glenohumeral tibiofibular patellofemoral subarachnoid biliary bronchopulmonary mineralisation
        mineralization apophysis apophyses areola areolae articulation bile calibre callosum calvaria capsule
        cauda conus course dura ear epididymis epididymides epiglottis epithelium equina fascia fossa fossae
        function ganglia groove haustration isthmus length meninges morphology motion ossification palate penis
        peristalsis putamen recess relationship rugae scalp spacing symphysis tail texture tongue trabecula
        trabeculae tubercle turbinate turcica vesicle villi cell nucleus nuclei lid eyelid sclera iris pupil
        choroid insula operculum pons medulla midbrain vermis falx tentorium clivus bicuspid crypt papilla
        papillae anus splenic porta ligamentum falciform omenta quadriceps hamstring biceps achilles plantaris
        supraspinatus infraspinatus subscapularis trochlea sesamoid calvarial toenail lobulation pelvicalyceal
        calyx calyces collecting pyramids corticomedullary endocardium epicardium outflow trabeculation
        oropharynx hypopharynx vocal vallecula piriform laryngeal mainstem lingula paratracheal subcarinal tone
        thickness depth diameter measurement dimension orientation spinal seat seating fit spongiosa endplate
        endplates interspinous osteon vena cava knuckle douglas morison morrison system chest head abdomen
        corpus ray echo ribcage outlet inlet arc arcs socket socketed cavum lacrimal tympanic hinge bifurcation
        confluence convexity convexities gutter flank groin loin syndesmosis synchondrosis aponeurosis
        anastomosis cementoenamel air gas contrast uptake enhancement activity node signal attenuation
        echogenicity""",
    # is normal of an organ and of what no table holds
    "form": """continuous straight compressible symmetric symmetrical aligned maintained good excellent cleared
        midline pink complete open congruent congruous perfused quiet flat parallel capacious roomy expected
        respected proper correct tidy neat clean wellformed supple transparent translucent lucid""",
    "normal": """normal unremarkable intact healthy negative patent wnl preserved appropriate satisfactory
        physiological anatomical nad nbi clear unbroken united kept clr unrem nml nl uninterrupted undisplaced
        undistorted unaffected uninvolved unobstructed unenlarged undilated sound spared pristine spotless
        unharmed uninjured unscathed flawless faultless usual aerated inflated ventilated corticated enlocated
        distensible pneumatised pneumatized normocephalic normocellular isointense anechoic balanced
        proportionate nondilated nonenlarged ungapped unrestricted fine attached dry neg inconspicuous""",
    # the same, but a lesion that is not so is still one
    "trait": """calcified displaced infarcted ruptured perforated comminuted angulated impacted depressed ulcerated
        leaking healed loculated nodular multiple""",
    # adjectives that claim a finding of what they describe
    "abn": """abnormal enlarged blunted widened dilated elevated deviated suspicious thickened tortuous prominent
        flattened collapsed wrong concerning worrisome unusual hyperinflated obscured shifted engorged congested
        remarkable fractured broken swollen narrowed torn herniated dislocated compressed stenosed effaced
        distended obstructed inflamed ischaemic ischemic protruding fissured subluxed opacified hypertrophied
        atrophied unhealed occluded thrombosed oedematous edematous malaligned cancerous malignant reduced
        pathological pathologic slipped loosened opaque small large tiny mild moderate severe minimal subtle big
        huge massive scattered diffuse patchy extensive linear thin thick high low short shaped long full
        carious ectopic aberrant anomalous angled arthritic avulsed bent bitten blocked blown bowed buckled
        bulky caked clouded cloudy clubbed coarse coarsened coiled compromised constricted contused corrugated
        cracked crooked crowded crumpled crushed curved damaged darker deficient deformed dehiscent
        demineralised demineralized denser deranged destroyed detached diminished discontinuous diseased
        disorganised disorganized disproportionate disrupted dissected distorted doubled drooping duplicated
        dysplastic eaten elongated eroded everted excavated exaggerated exposed faint fatty flaring fluffy
        foreshortened fragmented frayed gaping gapped hazy heterogeneous inhomogeneous hidden hollow humped ill
        immobile impaired impinged incomplete incongruent indented indistinct indrawn infected infiltrated
        injured interrupted invaded inverted irregular irritated jagged kinked lax leaky lobulated locked loose
        lumpy malformed malunited mangled masked matted misshapen mottled murky narrow necrotic notched
        obliterated offset overinflated overlapping overloaded penetrated pinched pitted plump polypoid porotic
        porous pruned puckered pushed ragged rarefied replaced resorbed retained retracted reversed rough
        roughened scalloped scarred sclerosed separated septated serrated severed shaggy shattered sheared
        shortened shrunken shrunk snapped speckled spiky splayed splintered split spotty squared squashed stiff
        straightened streaky stretched stripped studded sunken tense tethered tilted tipped trapped truncated
        twisted uncovered uneven unstable unequal vanished veiled wasted weak wedged whited worn wrinkled wide
        loses stops upward raised increased asymmetric asymmetrical unsymmetrical atypical incongruous""",
    # attributes and nouns that claim nothing by themselves
    "evid": """evidence sign indication suggestion area region focus foci feature form presence pattern class
        category kind instance hint trace amount""",
    "mod": """acute focal pleural pulmonary cardiac cardiopulmonary cardiothoracic cardiomediastinal mediastinal
        hilar perihilar osseous bony skeletal thoracic intrathoracic interstitial alveolar airspace lymph active
        significant obvious definite overt frank gross discrete convincing radiographic radiological radiologic
        clinical frontal pa ap portable upright supine erect single requested specified stable vascular
        bronchovascular soft costophrenic pericardial tracheal aortic ground glass radiopaque lytic infectious
        inflammatory traumatic cardiogenic pneumonic mid whole entire adjacent surrounding paediatric pediatric
        young male female plain digital weight bearing ac grey gray white inspiratory expiratory common deep
        superficial internal external main major sided extra intra pre para peri nondisplaced aggressive
        destructive enhancing spiculated stellate solid cut oblique transverse occult hairline stress wedge
        burst buckle torus rotator paired current remote relevant important notable measurable dominant sinister
        sizeable sizable compelling colles lisfranc salter harris subacute kerley septal occupying asked named
        listed queried said specific particular enhanced unenhanced weighted axial coronal sagittal serial
        cotton wool schmorl bucket handle tension infective ii corresponding proven established underlying
        associated overlying concomitant accompanying coexistent aspiration community hospital conventional
        routine dedicated hyaline respiratory ascending descending supra azygos hiatal hiatus sliding digestive
        boot pectus situs double implantable suture humeral left right bilateral bibasilar bibasal basilar basal
        upper lower middle apical retrocardiac unilateral central peripheral subpleural distal proximal medial
        lateral anterior posterior superior inferior outer inner ventral dorsal volar palmar plantar ulnar
        radial intracranial extracranial site type year request history query subject great dense obturator r l
        bl""",
    # findings that a lesion may have or lack itself
    "feature": """calcification cavitation displacement angulation necrosis invasion infiltration perforation
        obstruction leak leakage rupture restriction retraction loculation spiculation septation retropulsion
        washout""",
    "find": """finding abnormality eff box target pathology disorder anomaly infection infiltrate consolidation
        opacity opacification shadowing nodule mass cancer malignancy metastasis metastases effusion fluid
        congestion collapse dislocation granuloma scar scarring fibrosis thickening blunting enlargement
        widening shift deviation adenopathy cavity cyst bulla bullae bleb hyperinflation tb ild copd failure
        hemorrhage trauma device tube catheter pacemaker wire clip hardware implant stent haziness reticulation
        honeycombing redistribution prominence tortuosity aneurysm dissection pneumoperitoneum embolism infarct
        inflammation illness irregularity asymmetry distortion loss elevation flattening erosion lucency
        engorgement cephalization pneumomediastinum abnormalities break avulsion crack callus subluxation
        malalignment misalignment diastasis spur osteophyte enthesophyte exostosis sclerosis osteopenia
        spondylolysis herniation protrusion extrusion bulge stenosis compression wedging retrolisthesis
        listhesis sprain strain swelling bleed bleeding blood haemorrhage hemorrhages hematoma clot thrombus
        thrombi thromboembolism dvt stroke ischaemia ischemia edema hydrocephalus atrophy stone calculus calculi
        dilatation dilation distension distention ileus volvulus intussusception ascites abscess abscesses polyp
        ulcer diverticulum diverticula stricture varix varices caries cavities decay microcalcification
        macrocalcification cataract drusen exudate exudates microaneurysm neovascularisation neovascularization
        maculopathy detachment extravasation contusion laceration haemothorax ptx pe pneumatosis dysplasia
        osteonecrosis osteolysis narrowing encroachment impingement infiltrates wound plaque hypertrophy
        hyperplasia regurgitation foreign bankart sequestrum involucrum avm duplication agenesis hypoplasia
        aplasia variant scoliosis torsion reflux hydronephrosis hydroureter fistula crepitus granulomata
        bronchiectasis opacities trapping thickenings islands resorption impaction buckling greenstick stepoff
        step gap ptosis diffusion neoplasm neoplasia carcinoma lymphoma sarcoma glioma meningioma hamartoma
        haemangioma hemangioma adenoma fibroid fibroadenoma cystocele rectocele goitre goiter lymphadenopathies
        tuberculosis silicosis vegetations debris sludge sediment prosthesis loosening screw cast drain port
        wires lead sternotomy clips graft mets bulging indentation blush hypodensity hyperdensity radiolucency
        radiopacity overgrowth spasm laxity instability nonunion malunion deformities demineralisation
        demineralization malignancies tumours detection process effect akinesia appendicolith arrest bend
        bending blockage bowing breakage bruise bruising chip coalition cupping demyelination dimpling
        dyskinesia effacement embolus emboli faecolith fecalith fault gallstone bladderstone geode gibbus gout
        haze hematuria hypervascularity hypokinesia incarceration lump microbleed microfracture naevus nevus
        naevi nevi overhang phlegmon pneumobilia pseudoaneurysm psoriasis rarefaction rash rotation
        sequestration shortening shunt slip slippage stranding strangulation syrinx tophus tophi ulceration
        vegetation wart tartar kyphosis burn scald mole pimple blister callosity spicule encephalomalacia
        gliosis pannus whitening reddening redness pallor discoloration discolouration pus mucus plug dehiscence
        malposition migration kinking steatosis siderosis hemothorax anthracosis phlebolith sialolith concretion
        microlith microlithiasis varicocele hydrocele abruption previa gastritis stump cicatrix keloid prolapse
        incompetence insufficiency ggo atelectases hypoexpansion pseudonodule bronchiectases cpam chf
        dextrocardia elongation unfolding hypertension eventration gynecomastia gynaecomastia obesity metal cvc
        ett ngt picc icd defibrillator endoprosthesis osteosynthesis cement hypotension band paucity distress
        deformation excavatum carinatum marker inversus hernia material paralysis paresis plate breach
        disruption incongruity occlusion absence bump cleft crescent deficit dot fleck fragment hole hump knot
        patch pocket speck streak strand tuft veil whorl whiteout luxation dent kink overlap separation
        discontinuity lack stain clump cluster sequel calcium remnant lysis tilt spill scatter streaking
        mottling veiling nodularity speckling spotting seepage pooling difference suspicion suspected suspect""",
    # what turns a negation around, or says that nothing can be said
    "bad": """changed interval increase decrease decreased improvement improved resolution resolved progression
        progressive worsening growth growing persistent doubt longer more less fewer other further additional
        new residual recurrent remaining only just reason need text file except if who than per nobody everyone
        previously known maybe perhaps possible possibly probable probably likely versus vs regression clearing
        alteration reduction response recovery resolving improving changing enlarging increasing decreasing
        simple mere ordinary error input data prompt language diagnosis prognosis unless until otherwise
        elsewhere else how when where why what whether you once never hardly almost change doubtful equivocal
        questionable dubious missed uncertain unclear unsure initial historical original baseline apart save
        exclude rule ruled dismissed before ago last yesterday week today now again still already barely
        scarcely nearly mostly partly partially incompletely remains insufficient poor limited inadequate
        nondiagnostic suboptimal artefact artifact wonder treated untreated drained minor slight slightly mildly
        moderately somewhat rather fairly many several some much preceding latest minimally marginally resected
        removed postoperative status post lobectomy nephrectomy mastectomy amputated amputation surgically
        missing lost gone second third larger smaller bigger greater better worse later unexpected fresh
        comparable alternative competing issue concern positive think thinks believe assume guess suppose
        disagree advised recommended ungradable blurred underexposed overexposed degraded comment comments cat
        idea problem thanks way smoking persists persist spares beyond unlike despite excluding barring besides
        alongside superimposed idle access pulse assuming ideally hypothetically theoretically reportedly
        allegedly apparently presumably supposedly formerly technically seemingly virtually practically
        effectively quality time mind aside unknown uploaded supplied received sent borderline meaning guarantee
        information details luck clue certainty exception healing unchanged""",
    # behind "and" in a list it begins a new statement
    "one": "a an",
    "num": "two three four five six seven eight nine ten twelve fourteen",
    "like": "matching resembling representing",
    # what an answer does with boxes
    "done": "obtained performed provided submitted acquired available",
    "draw": """draw drawing return returning give giving provide providing mark reporting annotate annotating
        output produce marked drawn outlined boxed annotated highlighted""",
    # findings that take another one in front: "compression fracture"
    "kind": """fracture lesion disease injury formation malformation defect recurrence destruction infarction
        thrombosis deposit collection deformity tear tumour tumor sequela sequelae surgery reaction object""",
    # what joins two statements of which each is judged by itself
    "but": "but however although though while yet whereas since because",
    "of": "of for",
    # denies a finding in front, but never behind a negation
    "excluded": "excluded refuted",
    # what is denied may be old; an old image is no negative
    "former": "old prior previous earlier past former recent",
    # nothing is stated with them, except of what is denied
    "modal": "could would might may should must will",
    # may be anatomy or a finding
    "vague": "shadow density line stripe ring rim bubble notch pouch fold",
    # the same, but a lesion may be so as well
    "shape": """smooth crisp round rounded regular sharp homogeneous homogenous uniform concentric slim slender
        spherical even equal compact smoothly regularly""",
    # verbs that do
    "does": """bulges buckles bows dips droops encases encroaches gapes herniates impinges indents invades juts
        kinks leaks narrows overrides perforates presses protrudes pushes displaces sags shifts slips spills
        splits swells tilts veers widens obscures obliterates effaces blunts elevates abuts compresses masks
        conceals silhouettes obscuring displacing replacing invading eroding compressing encasing abutting
        indenting effacing elevating shifting bleeds breaks cracks""",
    # labels that stand in front of a statement, and that nobody denies
    "talk": "question conclusion verdict decision determination judgement judgment answer task statement",
    # who has findings, or parts that are normal
    "person": """patient man woman child infant boy girl adult neonate baby person individual he she newborn
        toddler lady gentleman""",
}
