"""Has no key for the master copy.

check: test_keys
mistake: key-missing
says: master
"""


def paper_parts(parameters):
    return {"parameters": 2 * parameters, "gradients": 2 * parameters, "moments": 8 * parameters}
