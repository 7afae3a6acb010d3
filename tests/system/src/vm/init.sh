#!/bin/busybox sh
# The first process of the guest: creates the devices, runs the suite named on the kernel's command line, and reports
# its result. Lines that begin with "vm: " are for the program that started the guest.
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run

# This output reaches the host even where the output of a command is captured as a value.
exec 3>&1
say() { echo "vm: $*" >&3; }

# What helps to find the cause of a failure: the end of the daemon's log ($1), and space and counters of the mounts that
# are still there ($2: the kernel's list). At most 40 lines of the log, and of all mounts. If a mount does not answer,
# only the command that asks it ends.
show_state() {
    [ ! -e "$1" ] || { echo "the end of the daemon's log:"; tail -n 40 "$1"; }
    while read -r device place type rest; do
        [ "$type" = fuse.polder ] || continue
        echo "$device is still mounted on $place:"
        timeout -s KILL 10 df "$place" 2>&1 || echo "df has failed"
        timeout -s KILL 10 polder stats "$place" 2>&1 || echo "polder stats has failed"
    done < "$2" | head -n 40
}

# The verdict. The host then ends the machine. The guest may write no line after this one.
verdict() {
    case $* in failed*) show_state /tmp/log /proc/mounts >&3 ;; esac
    say "$*"
    while :; do sleep 1000; done
}

# Waits until a condition holds, for 20 seconds at most.
await() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || verdict "failed: in vain: $*"
        sleep 0.1
    done
}

# The value of a name on the kernel's command line.
told() { sed -n "s/.*vm\\.$1=\\([^ ]*\\).*/\\1/p" /proc/cmdline; }

# Zoned flash, in memory, with these settings.
flash() {
    mkdir /sys/kernel/config/nullb/flash
    for setting in "$@" blocksize=4096 memory_backed=1 zoned=1 zone_max_open=8 zone_max_active=10 power=1; do
        echo "${setting#*=}" > /sys/kernel/config/nullb/flash/"${setting%%=*}" ||
            verdict "failed: null_blk refuses $setting"
    done
    await test -b /dev/flash
    export flash=/dev/flash
}

# The block device of a namespace, by its number. The kernel numbers devices in the order in which it finds them.
has_block_device() { grep -qsx "$1" /sys/block/nvme*/nsid; }
block_device() {
    await has_block_device "$1"
    name=$(grep -lx "$1" /sys/block/nvme*/nsid)
    name=${name%/nsid}
    echo /dev/"${name##*/}"
}

# The block devices of this many namespaces, each in a file.
numbered() {
    for number in $(seq "$1"); do block_device "$number" > /tmp/device-"$number"; done
    zns=$(cat /tmp/device-1)
}

# The generic device without a usable block device: its zones are no power of two.
has_bare_generic() {
    for name in /sys/class/nvme-generic/ng*; do
        name=${name##*/}
        [ -e "/sys/block/nvme${name#ng}" ] && [ "$(cat "/sys/block/nvme${name#ng}/size")" != 0 ] || generic=/dev/$name
    done
    [ -c "$generic" ]
}

modprobe nvme || verdict "failed: no modules"
case $(told devices) in
bought)
    modprobe sd_mod || verdict "failed: no modules"
    modprobe null_blk nr_devices=0 || verdict "failed: no null_blk"
    mount -t configfs configfs /sys/kernel/config
    # A host-managed SMR disk: conventional zones at its beginning, half a zone at its end.
    modprobe scsi_debug zbc=managed dev_size_mb=268 zone_size_mb=8 zone_nr_conv=3 zone_max_open=8 delay=0 ||
        verdict "failed: no scsi_debug"
    flash size=492 zone_size=16 zone_nr_conv=2
    await test -b /dev/sda
    await test -c /dev/ng0n2
    export smr=/dev/sda
    zns=$(block_device 1)
    ;;
small)
    modprobe null_blk nr_devices=0 || verdict "failed: no null_blk"
    mount -t configfs configfs /sys/kernel/config
    flash size=292 zone_size=8 zone_nr_conv=4
    await test -c /dev/ng0n4
    zns=$(block_device 1)
    short=$(block_device 2)
    disk=$(block_device 4)
    export short disk
    ;;
limited)
    numbered 3
    ;;
peers)
    numbered 6
    ;;
handles)
    disk=$(block_device 1)
    export disk
    ;;
*)
    zns=$(block_device 1)
    ;;
esac
export zns
[ -z "$zns" ] || [ "$(cat "/sys/block/${zns#/dev/}/queue/zoned")" = host-managed ] || verdict "failed: the first namespace has no zones"
if [ -e /dev/ng0n2 ] && [ ! -e /tmp/device-2 ]; then
    await has_bare_generic
    export generic
fi
quick=$(told quick)
only=$(told only)
seed=$(told seed)
export quick only seed

# What suites store: as large in every build of the program.
[ ! -e /bin/polder ] || head -c 16000000 /bin/polder > /tmp/contents

suite=$(told suite)
# The answer of the emulator is only for the caller.
stty -F /dev/ttyS0 -echo
say begun
# Through a pipe, because progress is drawn on a terminal.
set -o pipefail
sh -eu "/suites/$suite" 2>&1 | cat || verdict "failed: the suite ended with an error, see above"
# A suite that provokes errors says which ones.
[ -e /tmp/expected ] || echo 'nothing is expected' > /tmp/expected
dmesg -r | grep '^<[0-3]>\|WARNING: \|Call Trace' | grep -v -f /tmp/expected && verdict "failed: the kernel logged errors, see above"
verdict passed
