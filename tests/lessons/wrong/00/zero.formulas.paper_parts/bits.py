"""Counts bits.

check: test_one_parameter
mistake: bits-for-bytes
"""


def paper_parts(parameters):
    return {
        "parameters": 16 * parameters,
        "gradients": 16 * parameters,
        "master": 32 * parameters,
        "moments": 64 * parameters,
    }
