"""Sends under tag 0, under which the digests travel.

check: test_gather_tags
mistake: another-tag
"""


def all_gather(mesh, ticket, flat, bounds=None):
    bounds = bounds or even_bounds(flat.numel(), mesh.size)
    own = flat[slice(*bounds[mesh.rank])]
    parts = {p: flat[slice(*bounds[p])] for p in mesh.peers}
    handles = [mesh.receive(part, p, 0) for p, part in parts.items() if part.numel()]
    if own.numel():
        handles += [mesh.send(own, p, 0) for p in mesh.peers]

    def finish():
        mesh.settle(ticket)
        mesh.wait(handles, ticket)

    return Work(flat, [], finish), own.nbytes * len(mesh.peers)
