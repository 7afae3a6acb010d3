# What the size of zones costs, through the generic device: zones of 96 MiB beside zones of 128 MiB; and what the view
# costs (`polder po2`), which shows those of 96 MiB as zones of 128 MiB, beside the device itself. The same bytes are
# moved everywhere, zone by zone and as a file of a volume. Commands and bytes are those that the emulator has counted
# below; time is that of the guest, in turns, and says no more than how the places compare.
. /suites/ask

rounds=5
[ -z "$quick" ] || rounds=1
# Whole zones of both sizes.
mib=384
small=4096
modprobe ublk_drv
door=/dev/ng${zns#/dev/nvme}
view=/dev/ublkb0
mkdir /tmp/measured /tmp/small /tmp/large

# Moves bytes in a place, as a stage says, and notes what was counted of its namespace meanwhile:
# bytes, commands and how many in a second.
move() {
    place=$1 namespace=$2 stage=$3; shift 3
    before=$(ask traffic "$namespace")
    rate=$(polder-sim transfer --stage "$stage" --file $mib --small $small "$@" | sed -n 's/measured .*: //p')
    [ -n "$rate" ]
    after=$(ask traffic "$namespace")
    kind=read
    [ "$stage" != write ] || kind=write
    case $kind in read) bytes=read_bytes ;; write) bytes=written_bytes ;; esac
    bytes=$(($(of "$after" $bytes) - $(of "$before" $bytes)))
    commands=$(($(of "$after" ${kind}s) - $(of "$before" ${kind}s)))
    echo "$bytes $commands $rate" >> "/tmp/measured/$place-$stage"
    echo "$place, $stage: $bytes bytes in $commands commands, $rate a second"
}

# Volumes that write nothing because time has passed.
mounted() {
    polder mkfs --force "$1" > /dev/null
    polder mount -o commit=3600 "$1" "$2" --log /tmp/log
}

for round in $(seq $rounds); do
    echo "== round $round"
    for stage in write read read-small; do
        move zones-of-128 1 $stage --zones "$door"
        move zones-of-96 2 $stage --zones "$generic"
    done
    polder po2 "$generic" --log /tmp/log
    for stage in write read read-small; do
        move view 2 $stage --zones $view
    done
    polder po2 --end $view
    mounted "$door" /tmp/large
    mounted "$generic" /tmp/small
    for stage in write read read-small; do
        move volume-on-128 1 $stage --directory /tmp/large
        move volume-on-96 2 $stage --directory /tmp/small
    done
    polder umount /tmp/large
    polder umount /tmp/small
    polder po2 "$generic" --log /tmp/log
    mounted $view /tmp/small
    for stage in write read read-small; do
        move volume-on-view 2 $stage --directory /tmp/small
    done
    polder umount /tmp/small
    polder po2 --end $view
done

# Of a column of the rounds: the least, the median and the greatest.
spread() { awk "{ print \$$2 }" "/tmp/measured/$1" | sort -n | awk '{ at[NR] = $1 }
    END { print at[1], at[int((NR + 1) / 2)], at[NR] }'; }
median() { spread "$1" "$2" | cut -d' ' -f2; }
percent() { awk "BEGIN { printf \"%+.2f %%\\n\", 100 * ($1 - $2) / $2 }"; }

# Places, a stage: how one differs from the other, and in which hundredths at most in bytes and in commands.
compare() {
    one=$1-$3 other=$2-$3 most_bytes=$4 most_commands=$5
    for column in 1 2; do
        case $column in 1) what=bytes most=$most_bytes ;; 2) what=commands most=$most_commands ;; esac
        now=$(median $one $column) base=$(median $other $column)
        echo "$1 beside $2, $3, $what: $now and $base, $(percent "$now" "$base")"
        [ $(((now - base) * 100)) -le $((base * most)) ] || echo "$what of $one: more than $most %" >> /tmp/wrong
        [ $(((base - now) * 100)) -le $((base * most)) ] || echo "$what of $one: more than $most %" >> /tmp/wrong
    done
    # Places of one round took turns.
    paste "/tmp/measured/$one" "/tmp/measured/$other" | awk '{ printf "%.2f\n", $3 / $6 }' > /tmp/measured/ratio
    set -- "$1" "$2" "$3" $(spread ratio 1)
    echo "$1 beside $2, $3, rate: $5 of it ($4 to $6)"
}

for stage in write read read-small; do
    compare zones-of-96 zones-of-128 $stage 1 1
    compare volume-on-96 volume-on-128 $stage 1 1
    compare view zones-of-96 $stage 2 2
    compare volume-on-view volume-on-96 $stage 2 2
done
[ ! -e /tmp/wrong ] || { cat /tmp/wrong; exit 1; }
