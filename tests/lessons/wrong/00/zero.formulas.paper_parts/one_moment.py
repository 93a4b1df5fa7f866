"""Counts one moment: momentum, not Adam.

check: test_one_parameter
mistake: one-moment
"""


def paper_parts(parameters):
    return {
        "parameters": 2 * parameters,
        "gradients": 2 * parameters,
        "master": 4 * parameters,
        "moments": 4 * parameters,
    }
