"""Sends file descriptors over a socket. Python has functions for this only from 3.9 on."""
import array
import socket


def send(link, descriptor):
    """Sends one descriptor."""
    link.sendmsg([b"it"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))])


def receive(link):
    """Receives one descriptor; None if the other end has closed the socket."""
    received = array.array("i")
    _, ancillary, _, _ = link.recvmsg(16, socket.CMSG_LEN(received.itemsize))
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            received.frombytes(data[:received.itemsize])
    return received[0] if received else None
