"""The trial of the systemd unit: a nested systemd, three servers, and what must become of them.

It uses the installed programs and the kernel's own files, and no code of the supervisor.
"""
