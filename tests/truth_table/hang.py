"""Makes a process deaf but not stopped: `hang.py PID` holds it with ptrace until it is killed.

SIGCONT does not wake what a tracer has interrupted, SIGKILL still ends it. Prints `hung` when it
is so, and leaves when the process is gone (reaping what the kernel owes to a tracer).

Source: ptrace(2), PTRACE_SEIZE and PTRACE_INTERRUPT.
"""

import ctypes
import errno
import os
import sys

PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
pid = int(sys.argv[1])
for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
    if libc.ptrace(request, pid, None, None) != 0:
        print("gone" if ctypes.get_errno() == errno.ESRCH else "refused", flush=True)
        sys.exit()
_, status = os.waitpid(pid, WALL)
print("hung", flush=True)
while os.WIFSTOPPED(status):
    _, status = os.waitpid(pid, WALL)
