# The costs of the size of zones, through the generic device: zones of 96 MiB and zones of 128 MiB. Also the costs of
# the view (`polder po2`), which shows those of 96 MiB as zones of 128 MiB, compared with the device itself. The same
# bytes are moved everywhere, zone by zone and as a file of a volume. Commands and bytes are those that the emulator
# has counted below. Time is the guest's, in turns, and only allows a comparison of the places.
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

# Moves bytes in a place, as a stage requires, and notes the counts of its namespace meanwhile: bytes, commands and
# their rate per second.
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

# Volumes that write nothing because of the passing of time.
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

# The minimum, the median and the maximum of a column of the rounds.
spread() { awk "{ print \$$2 }" "/tmp/measured/$1" | sort -n | awk '{ at[NR] = $1 }
    END { print at[1], at[int((NR + 1) / 2)], at[NR] }'; }
median() { spread "$1" "$2" | cut -d' ' -f2; }
percent() { awk "BEGIN { printf \"%+.2f %%\\n\", 100 * ($1 - $2) / $2 }"; }

# Two places and a stage: how the first differs from the second, and the limits in hundredths for bytes and commands.
compare() {
    one=$1-$3 other=$2-$3 most_bytes=$4 most_commands=$5
    for column in 1 2; do
        case $column in 1) what=bytes most=$most_bytes ;; 2) what=commands most=$most_commands ;; esac
        now=$(median $one $column) base=$(median $other $column)
        echo "$1 beside $2, $3, $what: $now and $base, $(percent "$now" "$base")"
        [ $(((now - base) * 100)) -le $((base * most)) ] || echo "$what of $one: more than $most %" >> /tmp/wrong
        [ $(((base - now) * 100)) -le $((base * most)) ] || echo "$what of $one: more than $most %" >> /tmp/wrong
    done
    # The places of one round took turns.
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
