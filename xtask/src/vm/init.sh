#!/bin/busybox sh
# The first process of the guest: makes the devices, runs the suite that the kernel's command line names, says
# what became of it. Lines that begin with "vm: " are for whoever started the guest.
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run

say() { echo "vm: $*"; }

# The verdict; whoever listens ends the machine. It may write no line after this one.
verdict() { say "$*"; while :; do sleep 1000; done; }

# Waits for something to be so, for 20 seconds at most.
await() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || verdict "failed: in vain: $*"
        sleep 0.1
    done
}

modprobe -a nvme sd_mod || verdict "failed: no modules"
modprobe null_blk nr_devices=0 || verdict "failed: no null_blk"
# A host-managed SMR disk: conventional zones at its beginning, half a zone at its end.
modprobe scsi_debug zbc=managed dev_size_mb=268 zone_size_mb=8 zone_nr_conv=3 zone_max_open=8 delay=0 ||
    verdict "failed: no scsi_debug"
mount -t configfs configfs /sys/kernel/config
# Zoned flash: conventional zones, a last zone that is shorter.
flash=/sys/kernel/config/nullb/flash
mkdir $flash
for setting in size=492 blocksize=4096 memory_backed=1 zoned=1 zone_size=16 zone_nr_conv=2 zone_max_open=8 \
    zone_max_active=10 power=1; do
    echo "${setting#*=}" > $flash/"${setting%%=*}" || verdict "failed: null_blk refuses $setting"
done

await test -b /dev/flash
await test -b /dev/sda
await test -c /dev/ng0n2
# The kernel numbers namespaces as it finds them.
for name in /sys/block/nvme*; do
    [ "$(cat "$name/queue/zoned")" = host-managed ] && export zns=/dev/${name##*/}
done
[ -n "$zns" ] || verdict "failed: no namespace of NVMe has zones"
for name in /sys/class/nvme-generic/*; do
    [ "/dev/${name##*/}" = "/dev/ng${zns#/dev/nvme}" ] || export generic=/dev/${name##*/}
done
export flash=/dev/flash smr=/dev/sda

suite=$(sed 's/.*vm\.suite=\([^ ]*\).*/\1/' /proc/cmdline)
# Through a pipe, because on a terminal progress is drawn.
set -o pipefail
sh -eu "/suites/$suite" 2>&1 | cat || verdict "failed: the suite ended with an error, see above"
# A suite that provokes errors says which.
[ -e /tmp/expected ] || echo 'nothing is expected' > /tmp/expected
dmesg -r | grep '^<[0-3]>' | grep -v -f /tmp/expected && verdict "failed: the kernel logged errors, see above"
verdict passed
