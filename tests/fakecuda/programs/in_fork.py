"""python -I in_fork.py SOCKET ARGUMENTS...: what ``python ARGUMENTS...`` does, in a fork of forks.py, which is quicker.

Standard files, environment, working directory, exit code and a signal that ends the program are passed on.
"""

import json
import os
import signal
import socket
import sys

with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect(sys.argv[1])
    call = {"argv": sys.argv[2:], "env": dict(os.environ), "cwd": os.getcwd()}
    socket.send_fds(server, [json.dumps(call).encode()], [0, 1, 2])
    code = int(server.recv(20))
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
