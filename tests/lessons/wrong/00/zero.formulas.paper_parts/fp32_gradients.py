"""Keeps the gradients in fp32.

check: test_one_parameter
mistake: fp32-gradients
"""


def paper_parts(parameters):
    return {
        "parameters": 2 * parameters,
        "gradients": 4 * parameters,
        "master": 4 * parameters,
        "moments": 8 * parameters,
    }
