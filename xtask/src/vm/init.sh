#!/bin/sh
# The first process of the machine of `cargo xtask vm`. Ports (virtio serial): 1 and 2 carry the program's standard output
# and error, 3 says how it went, in lines: `start`, then `exit N` or `timeout`. The console carries the kernel's log.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root USER=root TERM=dumb

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin
ln -s fd/1 /dev/stdout
ln -s fd/2 /dev/stderr
hostname machine
ip link set lo up

end() {
    sync
    poweroff -f
}

modprobe -a virtio_pci virtio_console || { echo "machine: no channel to the outside"; end; }
# A port has its device file a moment before it can be opened.
for port in /dev/vport0p1 /dev/vport0p2 /dev/vport0p3; do
    tries=0
    until [ -c "$port" ] && (: >"$port") 2>/dev/null; do
        tries=$((tries + 1))
        [ "$tries" -gt 1000 ] && { echo "machine: $port does not come up"; end; }
        sleep 0.01
    done
done
exec 3>/dev/vport0p3

# Behind pipes, as anywhere: the ports themselves can be opened only once.
mkfifo /machine/out /machine/err
cat /machine/out >/dev/vport0p1 & out=$!
cat /machine/err >/dev/vport0p2 & err=$!

echo start >&3
sh /machine/command </dev/null >/machine/out 2>/machine/err 3>&- &
program=$!

(
    sleep "$(cat /machine/limit)"
    echo "machine: the time is up; these run:"
    ps -o pid,ppid,stat,args
    dmesg -n 8
    echo w >/proc/sysrq-trigger
    echo timeout >&3
    end
) & limit=$!

wait "$program"
code=$?
kill "$limit"

# What the program started may have outlived it and hold the pipes.
tries=0
while { [ -d "/proc/$out" ] || [ -d "/proc/$err" ]; } && [ "$tries" -lt 200 ]; do
    tries=$((tries + 1))
    sleep 0.01
done
echo "exit $code" >&3
end
