"""Waits for what it receives, and not for what it sends.

check: test_gather_messages
mistake: not-waited
"""


def all_gather(mesh, ticket, flat, bounds=None):
    bounds = bounds or even_bounds(flat.numel(), mesh.size)
    own = flat[slice(*bounds[mesh.rank])]
    handles, sends = [], []
    for peer in mesh.peers:
        part = flat[slice(*bounds[peer])]
        if part.numel():
            handles.append(mesh.receive(part, peer, ticket.tag))
        if own.numel():
            sends.append(mesh.send(own, peer, ticket.tag))

    def finish():
        mesh.settle(ticket)
        mesh.wait(handles, ticket)
        del sends[:0]  # the list lives on

    return Work(flat, [], finish), own.nbytes * len(sends)
