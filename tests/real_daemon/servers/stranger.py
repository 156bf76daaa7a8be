"""A process that nobody may signal: it blocks every signal and says which ones came.

Prints its pid and waits for the end of stdin, then prints the numbers of the pending signals.
"""

import os
import signal
import sys

signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
sys.stdout.write(f"{os.getpid()}\n")
sys.stdout.flush()
sys.stdin.buffer.read()
sys.stdout.write(" ".join(str(int(number)) for number in sorted(signal.sigpending())) + "\n")
