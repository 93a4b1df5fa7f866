"""Puts the total among the kinds.

check: test_keys
mistake: key-too-many
"""


def paper_parts(parameters):
    parts = {
        "parameters": 2 * parameters,
        "gradients": 2 * parameters,
        "master": 4 * parameters,
        "moments": 8 * parameters,
    }
    parts["total"] = sum(parts.values())
    return parts
