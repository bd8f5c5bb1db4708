"""What is wrong with a dataset of films and boxes: `examine` goes through its rows once and returns a `Checkup`.

Each `*_checks` module looks at one topic. It lists its checks (:class:`~grounding_rewards.doctor.findings.Check`:
severity, title, why it matters, what to do) and the examiner that finds them; `checks` puts the modules together.
A new check is an entry and a few lines in one of these modules.
"""
