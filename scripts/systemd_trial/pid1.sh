#!/usr/bin/env bash
# Becomes systemd as PID 1 of namespaces that the caller has made (pid, mount, cgroup, uts, ipc, net).
# STAGE: the trial's own directory; REPO: the sources; KEEP: directories that must stay readable, one a line, at least one.
# /etc, /run, /var/lib, /tmp and homes are fresh here, so nothing of the machine is written to.
set -euo pipefail

mount -t proc proc /proc
# systemd raises limits in /proc/sys that belong to the whole machine
mount --bind /proc/sys /proc/sys
mount -o remount,ro,bind /proc/sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup

# everything of ours lies on one tmpfs, which becomes /run: the stage itself may lie in /tmp
inside=$STAGE/inside
mkdir "$inside"
mount -t tmpfs -o mode=755 tmpfs "$inside"
mkdir "$inside"/{stage,kept,etc,systemd,lock,mount}
mount --bind "$STAGE" "$inside/stage"
for name in passwd group nsswitch.conf ld.so.cache ld.so.conf ld.so.conf.d localtime alternatives; do
    if [ -e "/etc/$name" ]; then cp -a "/etc/$name" "$inside/etc/"; fi
done
hold() { mkdir -p "$2" && mount --bind "$1" "$2"; }
mapfile -t keep <<<"$KEEP"
for i in "${!keep[@]}"; do hold "${keep[$i]}" "$inside/kept/$i"; done
mount --no-mtab --move "$inside" /run

for place in /root /home /tmp /var/tmp /var/lib; do
    if [ -d "$place" ] && [ ! -L "$place" ]; then mount -t tmpfs -o mode=755 tmpfs "$place"; fi
done
chmod 1777 /tmp
for i in "${!keep[@]}"; do
    if [ ! -e "${keep[$i]}" ]; then hold "/run/kept/$i" "${keep[$i]}"; fi
done

mount --bind /run/etc /etc
echo 0123456789abcdef0123456789abcdef >/etc/machine-id
mkdir -p /etc/systemd
cp -a /run/stage/units /etc/systemd/system
systemd-sysusers "$REPO/systemd/sysusers.d/mcp-supervisord.conf"
mkdir -p /etc/mcp-supervisor
cp /run/stage/config.json /etc/mcp-supervisor/
systemd-tmpfiles --create "$REPO/systemd/tmpfiles.d/mcp-supervisord.conf"

if [ -e /dev/console ]; then mount --bind /dev/null /dev/console; fi
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin container=trial \
    SYSTEMD_UNIT_PATH=/etc/systemd/system SYSTEMD_GENERATOR_PATH=/nonexistent \
    setpriv --bounding-set=-sys_module,-sys_boot,-sys_time,-sys_rawio,-syslog \
    /lib/systemd/systemd --system --unit=default.target --log-target=null --show-status=no
