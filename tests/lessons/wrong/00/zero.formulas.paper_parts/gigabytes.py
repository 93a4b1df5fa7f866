"""Gives GB in place of bytes.

check: test_one_parameter
mistake:
"""


def paper_parts(parameters):
    return {
        "parameters": 2 * parameters / 1e9,
        "gradients": 2 * parameters / 1e9,
        "master": 4 * parameters / 1e9,
        "moments": 8 * parameters / 1e9,
    }
