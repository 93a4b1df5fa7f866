"""Keeps the master copy in 16 bits too.

check: test_one_parameter
mistake: 16-bit-master
"""


def paper_parts(parameters):
    return {
        "parameters": 2 * parameters,
        "gradients": 2 * parameters,
        "master": 2 * parameters,
        "moments": 8 * parameters,
    }
