# One volume on each kind of device: zones whose size is a power of two, zones with a smaller capacity, zones whose
# size is no power of two, zoned flash with conventional zones and a shorter last one, and a disk without zones.
# With $only, just the named kind.
each() {
    count=0
    for kind in whole short odd flash disk; do
        [ -z "$only" ] || [ "$only" = $kind ] || continue
        case $kind in
        whole) device=$zns ;;
        short) device=$short ;;
        odd) device=$generic ;;
        flash) device=$flash ;;
        disk) device=$disk ;;
        esac
        began=$(cut -d. -f1 /proc/uptime)
        echo "== $kind: $device"
        $1 "$device"
        echo "$kind took $(($(cut -d. -f1 /proc/uptime) - began)) s"
        count=$((count + 1))
    done
    [ $count -gt 0 ] || { echo "no kind of device is called $only: there are whole, short, odd, flash and disk"; exit 1; }
}
