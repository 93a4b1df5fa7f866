"""Returns flat, as the blocking function does.

check: test_all_ranges_filled
mistake: no-work
"""


def all_gather(mesh, ticket, flat, bounds=None):
    bounds = bounds or even_bounds(flat.numel(), mesh.size)
    own = flat[slice(*bounds[mesh.rank])]
    parts = {p: flat[slice(*bounds[p])] for p in mesh.peers}
    handles = [mesh.receive(part, p, ticket.tag) for p, part in parts.items() if part.numel()]
    if own.numel():
        handles += [mesh.send(own, p, ticket.tag) for p in mesh.peers]
    mesh.settle(ticket)
    mesh.wait(handles, ticket)
    return flat
